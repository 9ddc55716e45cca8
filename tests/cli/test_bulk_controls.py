"""`cancel` and `replay` of many: by ids, or by a search, which asks first."""

import asyncio
import os
import pty
import subprocess
import sys
from typing import Any

import pytest

from flowfabric.cli import bulk
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.errors import RetryExhausted
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy
from flowfabric.states import PublicState
from tests import given
from tests.cli.conftest import Answer, Inside, Shell, one_line, usage_error
from tests.engine.controls import actions, execution


async def states(db: Connection, *executions: ExecutionId) -> list[PublicState]:
    return [await given.public_state(db, each) for each in executions]


# By ids.


async def test_several_ids_are_several_executions(ff: Inside, db: Connection) -> None:
    one, two = await given.created(db), await given.created(db)

    said = await ff("executions", "cancel", str(one), str(two))
    told = await ff("executions", "replay", str(one), str(two), "--json")

    assert (said.code, said.out) == (0, "cancelled 2 executions\n")
    assert told.json == {
        "replayed": 2,
        "executions": [
            {"execution_id": str(one), "error": None},
            {"execution_id": str(two), "error": None},
        ],
    }


async def test_one_that_is_refused_does_not_stop_the_others(ff: Inside, db: Connection) -> None:
    ended, unknown = await execution(db, "completed"), ExecutionId.mint()
    open_ = await given.created(db)

    answer = await ff("executions", "cancel", str(ended), str(unknown), str(open_))
    again = await ff("executions", "replay", str(open_), str(unknown), "--json")

    assert (answer.code, answer.out) == (1, "cancelled 1 execution\n")
    first, second = answer.err.splitlines()
    assert f"{ended} already terminal in state completed" in first
    assert second == f"ff: execution {unknown} does not exist"
    assert (again.code, again.json["replayed"]) == (1, 1)
    assert [each["error"] for each in again.json["executions"]] == [
        None,
        f"execution {unknown} does not exist",
    ]


async def test_one_malformed_id_among_several_changes_nothing(ff: Inside, db: Connection) -> None:
    open_ = await given.created(db)

    said = usage_error(await ff("executions", "cancel", str(open_), "nonsense"))

    assert "ID: 'nonsense' must be a uuid" in said
    assert await given.public_state(db, open_) == "waiting"


# By a search.


async def test_a_search_without_a_terminal_does_nothing_unless_told_to(
    shell: Shell, db: Connection
) -> None:
    found = [await given.created(db) for _ in range(7)]

    answer = await shell.ff("executions", "cancel", "--lane", "default")

    assert (answer.code, answer.out) == (1, "")
    *shown, more, question = answer.err.splitlines()
    assert {line.strip() for line in shown} < {str(each) for each in found}
    assert (len(shown), more.strip()) == (5, "… and 2 more")
    assert question == (
        "ff: cancel 7 executions? Nothing was done: give --yes to do it without being asked."
    )
    assert set(await states(db, *found)) == {"waiting"}


async def test_with_yes_a_search_cancels_what_is_open(ff: Inside, db: Connection) -> None:
    ended, elsewhere = await execution(db, "failed"), await given.created(db, lane_id="other")
    open_ = [await given.created(db), await given.created(db, delay=60)]

    answer = await ff("executions", "cancel", "--lane", "default", "--yes", "--reason", "clean up")

    assert (answer.code, answer.out) == (0, "cancelled 2 executions\n")
    assert await states(db, *open_) == ["cancelled", "cancelled"]
    assert await states(db, ended, elsewhere) == ["failed", "waiting"]
    assert {action.reason for action in await actions(db)} == {"clean up"}


async def test_with_yes_a_search_replays_what_ended_so(ff: Inside, db: Connection) -> None:
    failed = [await execution(db, "failed") for _ in range(2)]
    completed, of_other_kind = (
        await execution(db, "completed"),
        await execution(db, "failed", execution_kind="other"),
    )

    answer = await ff("executions", "replay", "--state", "failed", "--kind", "job", "-y", "--json")

    assert (answer.code, answer.json["replayed"]) == (0, 2)
    assert {each["execution_id"] for each in answer.json["executions"]} == set(map(str, failed))
    assert await states(db, *failed) == ["waiting", "waiting"]
    assert await states(db, completed, of_other_kind) == ["completed", "failed"]


@pytest.mark.parametrize(
    "search",
    [
        ("--tag", "shop.tenant=acme"),
        ("--namespace", "acme"),
        ("--kind", "report"),
        ("--state", "delayed"),
        ("--within", "1"),
    ],
    ids=" ".join,
)
async def test_every_option_of_a_search_narrows_it(
    ff: Inside, db: Connection, search: tuple[str, str]
) -> None:
    meant = await given.created(
        db,
        tags={"shop.tenant": "acme"},
        namespace="acme",
        execution_kind="report",
        delay=60,
    )
    other = await given.created(db)
    for table in ("ff.exec_core", "ff.ready"):
        await db.execute(
            f"UPDATE {table} SET created_at_ms = created_at_ms - 7200000 WHERE execution_id = $1",
            other.uuid,
        )

    answer = await ff("executions", "cancel", *search, "--yes")

    assert (answer.code, answer.out) == (0, "cancelled 1 execution\n")
    assert await states(db, meant, other) == ["cancelled", "waiting"]


async def test_at_most_so_many_of_a_search(ff: Inside, db: Connection) -> None:
    found = [await given.created(db) for _ in range(3)]

    answer = await ff("executions", "cancel", "--lane", "default", "--at-most", "2", "--yes")

    assert answer.out == "cancelled 2 executions\n"
    assert sorted(await states(db, *found)) == ["cancelled", "cancelled", "waiting"]


async def test_a_search_that_finds_nothing_does_not_ask(ff: Inside) -> None:
    said = await ff("executions", "cancel", "--lane", "nowhere")
    told = await ff("executions", "replay", "--state", "failed", "--json")

    assert (said.code, said.out, said.err) == (0, "cancelled 0 executions\n", "")
    assert told.json == {"replayed": 0, "executions": []}


# Many.


async def test_many_change_in_batches_and_each_batch_is_a_line(
    ff: Inside, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "BATCH", 2)
    found = [await given.created(db) for _ in range(5)]

    answer = await ff("executions", "cancel", "--lane", "default", "--yes")

    assert (answer.code, answer.out) == (0, "cancelled 5 executions\n")
    assert answer.err.splitlines()[-3:] == ["  2 of 5", "  4 of 5", "  5 of 5"]
    assert await states(db, *found) == ["cancelled"] * 5


async def test_on_a_terminal_batches_move_a_bar(
    shell: Shell, db: Connection, ff_engine: Engine
) -> None:
    await ff_engine.create_execution([given.new() for _ in range(bulk.BATCH + 1)])
    ours, theirs = pty.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "flowfabric.cli", "executions", "cancel"),
            *("--lane", "default", "--yes"),
            cwd=shell.directory,
            env=shell.environment | {"TERM": "xterm"},
            stdout=subprocess.PIPE,
            stderr=theirs,
        )
        out, _ = await asyncio.wait_for(process.communicate(), 60)
        shown = os.read(ours, 100_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)

    assert out.decode() == f"cancelled {bulk.BATCH + 1} executions\n"
    assert f"/{bulk.BATCH + 1}" in shown
    assert "━" in shown
    assert f"of {bulk.BATCH + 1}\r" not in shown


@pytest.mark.parametrize("verbose", [False, True])
async def test_refusals_of_a_search_are_counted_by_their_reason_or_listed(
    ff: Inside, db: Connection, verbose: bool
) -> None:
    never = ExecutionPolicy(max_replay_count=0)
    refused = [await execution(db, "cancelled", policy=never) for _ in range(2)]
    replayed = await execution(db, "cancelled")

    answer = await ff(
        *("executions", "replay", "--state", "cancelled", "--yes"), *["--verbose"] * verbose
    )

    assert (answer.code, answer.out) == (1, "replayed 1 execution\n")
    complaints = [line for line in answer.err.splitlines() if line.startswith("ff: ")]
    if verbose:
        assert len(complaints) == 2
        assert all(any(str(each) in line for line in complaints) for each in refused)
    else:
        assert complaints == [
            "ff: refused 2 executions: 2 max_replays_exhausted (--verbose lists them)"
        ]
    assert await states(db, replayed, *refused) == ["waiting", "cancelled", "cancelled"]


async def test_a_batch_that_fails_does_not_stop_the_next(
    ff: Inside, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "BATCH", 2)
    found = [await given.created(db) for _ in range(4)]
    calls = 0
    cancel = Engine.cancel_executions

    async def once_busy(self: Engine, *arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RetryExhausted("cancel_executions", 3)
        return await cancel(self, *arguments, **options)

    monkeypatch.setattr(Engine, "cancel_executions", once_busy)
    answer = await ff("executions", "cancel", "--lane", "default", "--yes")

    assert (answer.code, answer.out) == (1, "cancelled 2 executions\n")
    assert answer.err.splitlines()[-1].startswith("ff: refused 2 executions: 2 retry_exhausted")
    assert sorted(await states(db, *found)) == ["cancelled", "cancelled", "waiting", "waiting"]


# On a terminal.


async def on_a_terminal(shell: Shell, typed: str, *arguments: str) -> Answer:
    """Run `ff` with a terminal as its input, and type a line."""
    ours, theirs = pty.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "flowfabric.cli",
            *arguments,
            cwd=shell.directory,
            env=shell.environment,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        os.write(ours, f"{typed}\n".encode())
        out, err = await asyncio.wait_for(process.communicate(), 60)
    finally:
        os.close(ours)
        os.close(theirs)
    return Answer(process.returncode or 0, out.decode(), err.decode())


async def test_on_a_terminal_the_user_is_asked(shell: Shell, db: Connection) -> None:
    waiting = await given.created(db)
    cancel = ("executions", "cancel", "--lane", "default")

    no = await on_a_terminal(shell, "n", *cancel)
    before = await given.public_state(db, waiting)
    yes = await on_a_terminal(shell, "y", *cancel)

    assert (no.code, no.out, before) == (1, "", "waiting")
    assert no.err.splitlines()[-1].endswith("cancel 1 execution? [y/N] ff: nothing was done")
    assert (yes.code, yes.out) == (0, "cancelled 1 execution\n")
    assert await given.public_state(db, waiting) == "cancelled"


# Mistakes.


MISTAKES: list[tuple[tuple[str, ...], str]] = [
    (("cancel",), "must be given, or a search such as --lane"),
    (("cancel", "--yes"), "must be given, or a search such as --lane"),
    (("cancel", "ID", "--lane", "default"), "cannot be given together with a search"),
    (("replay", "ID", "--state", "failed"), "cannot be given together with a search"),
    (("cancel", "--state", "failed"), "--state: 'failed' has ended"),
    (("replay",), "must be given to replay what a search finds"),
    (("replay", "--lane", "default"), "must be given to replay what a search finds"),
    (("replay", "--state", "active"), "--state: 'active' has not ended"),
    (("cancel", "--tag", "acme"), "--tag: 'acme' must look like area.name=value"),
    (("cancel", "--tag", "tenant=acme"), "--tag: 'tenant' must look like area.name"),
    (("cancel", "--lane", "grö"), "--lane: 'grö' must be printable ASCII"),
]


async def test_a_choice_that_cannot_be_is_one_line_and_changes_nothing(
    ff: Inside, db: Connection
) -> None:
    open_ = await given.created(db)

    for arguments, why in MISTAKES:
        named = [str(open_) if word == "ID" else word for word in arguments]
        assert why in one_line(await ff("executions", *named), 2)
    assert await given.public_state(db, open_) == "waiting"


async def test_a_value_that_cannot_be_shows_how_it_is_used(ff_alone: Inside) -> None:
    for option, value in (("--state", "broken"), ("--at-most", "0"), ("--within", "nan")):
        assert option in usage_error(await ff_alone("executions", "cancel", option, value))


async def test_what_is_missing_is_not_shown_as_none(ff_alone: Inside) -> None:
    for command in ("cancel", "replay"):
        assert "None" not in one_line(await ff_alone("executions", command), 2)


async def test_an_id_given_twice_is_one_execution(ff: Inside, db: Connection) -> None:
    waiting = str(await given.created(db))

    assert (await ff("executions", "cancel", waiting, waiting)).out == "cancelled 1 execution\n"
