"""`ff executions resume | wake | steps`, and the searches for what handlers have recorded."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from flowfabric.client.identity import user_at_host
from flowfabric.db.rows import Connection
from flowfabric.engine.journal.entry import PATCH_PREFIX, EntryWrite
from flowfabric.engine.journal.record_entries import record_entries
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.delay import DelayRequest, delay
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.ids import ExecutionId
from flowfabric.states import DIVERGENCE, JournalKind, JournalState, SuspensionReason
from flowfabric.testing import Clock
from tests import given
from tests.cli.conftest import Inside, one_line
from tests.engine.controls import actions
from tests.engine.executions.suspended import suspended, waiting_for_signal
from tests.worker.facts import eventually

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def entry(lease: Lease, seq: int, **fields: Any) -> EntryWrite:
    defaults: dict[str, Any] = {
        "kind": JournalKind.STEP,
        "state": JournalState.DONE,
        "name": "charge",
        "started_at": BEGAN,
    }
    return EntryWrite(lease=lease, seq=seq, **(defaults | fields))


async def diverged(db: Connection, kind: str = "order") -> ExecutionId:
    return await suspended(
        db,
        kind=kind,
        reason=SuspensionReason.WAITING_FOR_OPERATOR_REVIEW,
        detail=f"{DIVERGENCE}other calls",
        keeps_waitpoints=True,
    )


async def sleeping(db: Connection, until: datetime) -> ExecutionId:
    """A handler that sleeps, with its open entry."""
    lease = await given.claimed(db)
    sleep = entry(
        lease, 1, kind=JournalKind.SLEEP, state=JournalState.OPEN, name="nap", due_at=until
    )
    await record_entries(db, [sleep])
    await delay(db, [DelayRequest(lease=lease, delay_until=until, detail="sleeps in 'nap'")])
    return lease.execution_id


# Resume.


async def test_resume_lets_a_suspended_execution_go_on(ff: Inside, db: Connection) -> None:
    execution_id = await waiting_for_signal(db)

    answer = await ff("executions", "resume", str(execution_id), "--reason", "look again")
    again = one_line(await ff("executions", "resume", str(execution_id)))

    assert (answer.code, answer.out) == (0, f"resumed {execution_id}\n")
    assert "its handler waits for signal 'approved', and waits again unless" in answer.err
    assert again == f"ff: execution {execution_id} is resumable, not suspended"
    [action] = await actions(db, execution_id)
    assert (action.event_type, action.actor) == ("resumed", user_at_host())
    assert action.reason == "look again"


async def test_resume_after_a_delay(ff: Inside, db: Connection) -> None:
    execution_id = await diverged(db)

    answer = await ff("executions", "resume", str(execution_id), "--delay", "5m", "--json")

    assert answer.json == {"execution_id": str(execution_id), "public_state": "delayed"}


async def test_everything_that_diverged_is_resumed_once_confirmed(
    ff: Inside, db: Connection
) -> None:
    mended = [await diverged(db) for _ in range(2)]
    other = await diverged(db, "other")
    waiting = await waiting_for_signal(db)
    search = ("executions", "resume", "--divergent", "--kind", "order")

    unasked = await ff(*search)
    answer = await ff(*search, "--yes")
    listed = (await ff("executions", "list", "--divergent", "--json")).json

    assert (unasked.code, answer.out) == (1, "resumed 2 executions\n")
    assert "resume 2 executions? Nothing was done" in unasked.err
    assert [await given.public_state(db, each) for each in mended] == ["resumable"] * 2
    assert await given.public_state(db, waiting) == "suspended"
    assert [each["execution_id"] for each in listed["executions"]] == [str(other)]


async def test_what_cannot_be_resumed_is_one_line(ff: Inside) -> None:
    nothing = one_line(await ff("executions", "resume"), 2)
    failed = one_line(await ff("executions", "resume", "--state", "failed"), 2)

    assert nothing == "ff: ID: must be given, or a search such as --lane"
    assert failed == "ff: --state: 'failed' must be suspended here"


# Wake.


async def test_a_sleeper_sleeps_on_unless_its_sleep_is_skipped(
    ff: Inside, db: Connection, clock: Clock
) -> None:
    until = await clock.now() + timedelta(days=3)
    first, second = await sleeping(db, until), await sleeping(db, until)

    woken = await ff("executions", "wake", str(first))
    skipped = await ff("executions", "wake", str(second), "--skip")
    again = one_line(await ff("executions", "wake", str(first)))

    assert woken.out == f"woken {first}\n"
    assert "it sleeps in 'nap' and goes on sleeping; --skip ends the sleep" in woken.err
    assert (skipped.out, skipped.err) == (f"woken {second}, its sleep nap#0 is over\n", "")
    assert again.endswith("is waiting, not delayed")
    assert [await given.public_state(db, each) for each in (first, second)] == ["waiting"] * 2


async def test_a_search_wakes_what_is_delayed_alone(ff: Inside, db: Connection) -> None:
    delayed = [await given.created(db, delay=600, lane_id="mail") for _ in range(2)]
    await given.created(db, lane_id="mail")

    answer = await ff("executions", "wake", "--lane", "mail", "--yes")

    assert (answer.code, answer.out) == (0, "woken 2 executions\n")
    assert [await given.public_state(db, each) for each in delayed] == ["waiting"] * 2


# Steps.


async def test_steps_show_what_a_handler_has_recorded(
    ff: Inside, db: Connection, clock: Clock
) -> None:
    now = await clock.now()
    lease = await given.claimed(db)
    await record_entries(
        db,
        [
            entry(lease, 1, encoding="json", value=b'{"id":7}', started_at=now),
            entry(lease, 2, name="mail", item="ann", tries=3, state=JournalState.FAILED,
                  encoding="error", value=b'{"reason":"down"}', started_at=now),
            entry(lease, 3, name="nap", kind=JournalKind.SLEEP, state=JournalState.OPEN,
                  due_at=now + timedelta(days=1), started_at=now),
        ],
    )  # fmt: skip

    shown = (await ff("executions", "steps", str(lease.execution_id))).out
    values = (await ff("executions", "steps", str(lease.execution_id), "--values")).out
    told = (await ff("executions", "steps", str(lease.execution_id), "--values", "--json")).json
    page = (await ff("executions", "steps", str(lease.execution_id), "--limit", "1")).out

    assert [line.split()[:3] for line in shown.splitlines()[1:]] == [
        ["charge#0", "step", "done"],
        ["mail:ann#0", "step", "failed"],
        ["nap#0", "sleep", "open"],
    ]
    assert '{"id":7}' in values
    assert "down" in values
    assert '{"id":7}' not in shown
    assert [each["key"] for each in told["steps"]] == ["charge#0", "mail:ann#0", "nap#0"]
    assert told["steps"][0]["value"] == {"id": 7}
    assert told["next_cursor"] is None
    assert page.endswith("More: --cursor 1\n")


async def test_a_sleep_whose_time_has_passed_is_done(
    ff: Inside, db: Connection, clock: Clock
) -> None:
    until = await clock.now() + timedelta(seconds=30)
    execution_id = await sleeping(db, until)
    await clock.advance(31)

    [step] = (await ff("executions", "steps", str(execution_id), "--json")).json["steps"]

    assert step["state"] == "done"


async def test_an_execution_without_steps_says_so(ff: Inside, db: Connection) -> None:
    execution_id = await given.created(db)

    answer = await ff("executions", "steps", str(execution_id))
    missing = one_line(await ff("executions", "steps", str(ExecutionId.mint())))

    assert answer.out == "No durable calls are recorded.\n"
    assert missing.endswith("does not exist")


async def has_listed(db: Connection) -> bool:
    """Has `ff` read the steps?"""
    return await db.fetchval(
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'flowfabric cli' AND state = 'idle'"
        " AND query LIKE '%journal.list_steps%')"
    )


@pytest.mark.session("looks for the statements of a session")
async def test_steps_are_followed_to_the_end(ff: Inside, db: Connection) -> None:
    lease = await given.claimed(db)
    await record_entries(db, [entry(lease, 1, state=JournalState.OPEN)])
    following = asyncio.create_task(ff("executions", "steps", str(lease.execution_id), "--follow"))
    await eventually(lambda: has_listed(db))
    await record_entries(db, [entry(lease, 1), entry(lease, 2, name="ship")])
    await complete(db, [Completion(lease)])

    answer = await asyncio.wait_for(following, 30)

    assert [line.split()[1:4] for line in answer.out.splitlines()] == [
        ["step", "open", "charge#0"],
        ["step", "done", "charge#0"],
        ["step", "done", "ship#0"],
    ]


# Searches and replays.


async def test_executions_that_may_be_without_a_patch_are_counted(
    ff: Inside, db: Connection
) -> None:
    lease = await given.claimed(db, execution_kind="order")
    search = ("executions", "list", "--kind", "order", "--patch-missing", "audit")

    missing = await ff(*search)
    await record_entries(
        db,
        [
            entry(
                lease,
                1,
                kind=JournalKind.PATCH,
                name=f"{PATCH_PREFIX}audit",
                encoding="json",
                value=b"true",
            )
        ],
    )
    none = await ff(*search)
    unnamed = one_line(await ff("executions", "list", "--patch-missing", "audit"), 2)

    assert missing.out.endswith("1 execution without patch audit\n")
    assert none.out == "No executions.\n0 executions without patch audit\n"
    assert unnamed == "ff: --patch-missing: 'audit' must be given with a kind"


async def test_a_replay_begins_where_it_is_told_to(ff: Inside, db: Connection) -> None:
    async def failed() -> ExecutionId:
        lease = await given.claimed(db)
        await record_entries(db, [entry(lease, 1), entry(lease, 2, name="ship")])
        await fail(db, [Failure(lease=lease, reason="boom", category="x")])
        return lease.execution_id

    kept, anew, cut, other = [await failed() for _ in range(4)]

    await ff("executions", "replay", str(kept))
    await ff("executions", "replay", str(anew), "--from", "start")
    await ff("executions", "replay", str(cut), "--from-step", "ship")
    missing = one_line(await ff("executions", "replay", str(other), "--from-step", "nope"))

    async def names(execution_id: ExecutionId) -> list[str]:
        told = await ff("executions", "steps", str(execution_id), "--json")
        return [each["name"] for each in told.json["steps"] if each["kind"] == "step"]

    assert [await names(each) for each in (kept, anew, cut)] == [
        ["charge", "ship"],
        [],
        ["charge"],
    ]
    assert "step 'nope'" in missing


async def test_show_has_the_suspension(ff: Inside, db: Connection) -> None:
    execution_id = await waiting_for_signal(db)

    shown = (await ff("executions", "show", str(execution_id))).out
    told = (await ff("executions", "show", str(execution_id), "--json")).json

    assert re.search(r"waiting_for_signal \(\ds ago\), awaits 'approved'", shown)
    assert told["current_suspension"]["awaits_signals"] == ["approved"]
    assert told["compensation"] is None
