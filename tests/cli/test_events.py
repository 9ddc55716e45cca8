"""`ff events tail`: what happens, in order, from the start, from a cursor or from now."""

import asyncio
import json
import signal
from typing import Any

import pytest

from flowfabric.client.identity import user_at_host
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.events.cursor import cursor_to_hex, encode_cursor
from flowfabric.ids import ExecutionId
from tests import given
from tests.cli.conftest import Answer, Inside, Shell, one_line, usage_error
from tests.engine.controls import execution
from tests.engine.suspensions.given_suspended import accepted, leased, pending
from tests.worker.facts import eventually

READERS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
 WHERE datname = current_database()
   AND application_name IN ('flowfabric cli', 'flowfabric listener')
"""


def told(answer: Answer) -> list[dict[str, Any]]:
    """The events that --json printed, one a line."""
    assert answer.code == 0, answer
    return [json.loads(line) for line in answer.out.splitlines()]


async def line_of(stream: asyncio.StreamReader | None) -> str:
    assert stream is not None
    return (await asyncio.wait_for(stream.readline(), 30)).decode().rstrip("\n")


async def follow(shell: Shell, db: Connection, *arguments: str) -> asyncio.subprocess.Process:
    """A tail that has begun to follow."""
    process = await shell.start("events", "tail", *arguments)
    assert (await line_of(process.stderr)).startswith("following ")
    await eventually(lambda: db.fetchval("SELECT count(*) FROM ff.waiter WHERE topic <> ''"))
    return process


async def end(process: asyncio.subprocess.Process) -> Answer:
    try:
        out, err = await asyncio.wait_for(process.communicate(), 30)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Answer(process.returncode or 0, out.decode(), err.decode())


async def cancelled(db: Connection, **fields: Any) -> ExecutionId:
    return await execution(db, "cancelled", **fields)


# From the start, or from a cursor.


async def test_ends_are_printed_in_order_and_it_stops_at_the_limit(
    ff: Inside, db: Connection
) -> None:
    first = await execution(db, "completed")
    second, _ = await cancelled(db), await cancelled(db)

    answer = await ff("events", "tail", "--cursor", "start", "--limit", "2")

    assert (answer.code, answer.err) == (0, "following completion events\n")
    assert [line.split()[1:] for line in answer.out.splitlines()] == [
        ["success", str(first), "job", "on", "default"],
        ["cancelled", str(second), "job", "on", "default"],
    ]


async def test_a_cursor_goes_on_behind_the_event_it_came_with(ff: Inside, db: Connection) -> None:
    made = [await cancelled(db) for _ in range(3)]
    tail = ("events", "tail", "completion", "--json", "--cursor")

    [first] = told(await ff(*tail, "start", "--limit", "1"))
    second, third = told(await ff(*tail, first["cursor"], "--limit", "2"))

    seen = [first, second, third]
    assert [each["execution_id"] for each in seen] == [str(each) for each in made]
    assert [each["event_id"] for each in seen] == sorted(each["event_id"] for each in seen)
    assert first["cursor"] == cursor_to_hex(encode_cursor(first["event_id"]))
    assert (first["outcome"], first["lane_id"], first["namespace"]) == (
        "cancelled",
        "default",
        "default",
    )


async def test_leases_are_told_with_their_holder_and_why_they_ended(
    ff: Inside, db: Connection
) -> None:
    completed = await execution(db, "completed")
    tail = ("events", "tail", "lease", "--cursor", "start", "--limit", "2")

    said = await ff(*tail)
    acquired, revoked = told(await ff(*tail, "--json"))

    assert [line.split()[1:] for line in said.out.splitlines()] == [
        ["acquired", str(completed), "by", "w-1"],
        ["released", "(completed)", str(completed), "by", "w-1"],
    ]
    assert (acquired["kind"], acquired["worker_instance_id"]) == ("acquired", "w-1")
    assert (revoked["kind"], revoked["reason"]) == ("revoked", "completed")
    assert revoked["revoked_by"] == "worker"
    [line, _] = (await ff("events", "list", "lease")).out.splitlines()[1:]
    assert line.split()[2:] == ["released", str(completed), "w-1", "1", "completed"]


async def test_operators_are_told_with_what_they_did(ff: Inside, db: Connection) -> None:
    waiting = str(await given.created(db))
    await ff("executions", "block", waiting, "--reason", "[b]look[/b]")
    await ff("lanes", "pause", "default")
    tail = ("events", "tail", "operator", "--cursor", "start", "--limit", "2")

    first, second = (await ff(*tail)).out.splitlines()
    blocked, paused = told(await ff(*tail, "--json"))

    assert f"blocked              {waiting} by {user_at_host()}: [b]look[/b]" in first
    assert f"lane_state_changed    by {user_at_host()} lane_id=default" in second
    assert (blocked["event_type"], blocked["actor"]) == ("blocked", user_at_host())
    assert (paused["execution_id"], paused["details"]["new_state"]) == (None, "paused")
    heading, *lines = (await ff("events", "list", "operator")).out.splitlines()
    assert heading.split()[:4] == ["at", "(UTC)", "event_type", "subject"]
    assert "lane_state_changed  lane default is paused" in lines[0]
    assert waiting in lines[1]


async def test_signals_are_told_with_their_name_and_their_source(
    ff: Inside, db: Connection
) -> None:
    waitpoint = await pending(db, await leased(db))
    signal_id = (await accepted(db, waitpoint, "[b]go", source_identity="ann")).signal_id
    tail = ("events", "tail", "signal", "--cursor", "start", "--limit", "1")

    [line] = (await ff(*tail)).out.splitlines()
    [event] = told(await ff(*tail, "--json"))

    target = str(waitpoint.execution_id)
    assert f"buffered_for_pending_waitpoint {target} [b]go from external ann" in line
    assert (event["signal_id"], event["execution_id"]) == (str(signal_id), target)
    assert (event["effect"], event["source_identity"]) == ("buffered_for_pending_waitpoint", "ann")
    [line] = (await ff("events", "list", "signal")).out.splitlines()[1:]
    assert line.split()[2:] == [
        "[b]go",
        target,
        "buffered_for_pending_waitpoint",
        "external",
        "ann",
    ]
    story = (await ff("executions", "history", target)).out
    assert "buffered_for_pending_waitpoint" in story
    assert "signal_name=[b]go" in story


async def test_only_of_a_namespace_or_with_a_tag(ff: Inside, db: Connection) -> None:
    await cancelled(db)
    of_acme = await cancelled(db, namespace="acme")
    tagged = await cancelled(db, tags={"shop.tenant": "acme"})
    tail = ("events", "tail", "--cursor", "start", "--limit", "1", "--json")

    [by_namespace] = told(await ff(*tail, "--namespace", "acme"))
    [by_tag] = told(await ff(*tail, "--tag", "shop.tenant=acme"))

    assert by_namespace["execution_id"] == str(of_acme)
    assert (by_tag["execution_id"], by_tag["tags"]) == (str(tagged), {"shop.tenant": "acme"})


# From now.


@pytest.mark.session("begins when a process is registered for notifications")
async def test_from_now_only_what_happens_afterwards_is_told(shell: Shell, db: Connection) -> None:
    await cancelled(db)
    tail = await follow(shell, db, "--limit", "2", "--json")

    made = [await cancelled(db), await cancelled(db)]

    assert [each["execution_id"] for each in told(await end(tail))] == [str(each) for each in made]


@pytest.mark.session("begins when a process is registered for notifications")
async def test_an_event_is_printed_when_it_happens_and_ctrl_c_ends_the_tail(
    shell: Shell, db: Connection, ff_engine: Engine
) -> None:
    waiting = await given.created(db)
    tail = await follow(shell, db, "operator")

    await ff_engine.change_priority(waiting, 5, actor="ann")
    line = await line_of(tail.stdout)
    tail.send_signal(signal.SIGINT)
    answer = await end(tail)

    assert f"priority_changed     {waiting} by ann" in line
    assert (answer.code, answer.out, answer.err) == (0, "", "")


@pytest.mark.session("begins when a process is registered for notifications")
async def test_a_tail_that_lost_its_connection_goes_on_where_it_was(
    shell: Shell, db: Connection
) -> None:
    tail = await follow(shell, db, "lease", "--limit", "3", "--json")
    lease = await given.claimed(db)
    first = json.loads(await line_of(tail.stdout))

    await db.execute(READERS)
    others = [await given.claimed(db), await given.claimed(db)]

    seen = [first["execution_id"], *(each["execution_id"] for each in told(await end(tail)))]
    assert seen == [str(each.execution_id) for each in (lease, *others)]


# Mistakes.


MISTAKES: list[tuple[tuple[str, str], str]] = [
    (("--cursor", "zz"), "--cursor: 'zz' must be hexadecimal"),
    (("--cursor", "a b"), "--cursor: 'a b' must be hexadecimal"),
    (("--cursor", "0203"), "--cursor: '0203' must be empty, or 02 and 8 bytes of event id"),
    (("--cursor", "02" + "ff" * 8), "names an event id that cannot exist"),
    (("--tag", "acme"), "--tag: 'acme' must look like area.name=value"),
]


async def test_a_cursor_or_a_tag_that_cannot_be_is_one_line(ff_alone: Inside) -> None:
    for arguments, why in MISTAKES:
        assert why in one_line(await ff_alone("events", "tail", *arguments), 2)


async def test_what_is_not_an_option_shows_how_it_is_used(ff_alone: Inside) -> None:
    assert "EVENTS" in usage_error(await ff_alone("events", "tail", "everything"))
    assert "--limit" in usage_error(await ff_alone("events", "tail", "--limit", "0"))


# What is not as it should be.


async def test_a_filter_that_cannot_be_is_one_line(ff: Inside) -> None:
    for wanted in (("--tag", "tenant=acme"), ("--namespace", "")):
        assert "must" in one_line(await ff("events", "tail", *wanted), 2)


@pytest.mark.session("begins when a process is registered for notifications")
async def test_it_says_that_it_follows_once_it_does(shell: Shell, db: Connection) -> None:
    async with db.transaction():
        await db.execute("LOCK TABLE ff.completion_event")  # nobody can tell what is newest
        tail = await shell.start("events", "tail", "--limit", "1")
        await eventually(lambda: it_waits(db))
        said = asyncio.create_task(line_of(tail.stderr))
        try:
            finished, _ = await asyncio.wait({said}, timeout=0.5)
            assert not finished
        finally:
            said.cancel()
            tail.kill()
            await tail.wait()


async def it_waits(db: Connection) -> bool:
    """Does a command wait for a lock? A transaction sees others move only when it looks afresh."""
    await db.execute("SELECT pg_stat_clear_snapshot()")
    return await db.fetchval(
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'flowfabric cli'"
        " AND datname = current_database() AND wait_event_type = 'Lock'"
    )
