"""The story of one execution, from all outboxes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from flowfabric.conditions import Single
from flowfabric.db.rows import Connection, positional
from flowfabric.engine.events import read_history as module
from flowfabric.engine.events.read_history import READ_HISTORY, HistoryEntry
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.lifecycle.resume import Resume, resume
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.change_priority import change_priority
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.engine.operators.resume_execution import resume_execution
from flowfabric.engine.operators.revoke_lease import revoke_lease
from flowfabric.engine.suspensions.send_signal import NewSignal, send_signal
from flowfabric.engine.suspensions.signal_events import NewSignalEvent, record_signal_events
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId, new_uuid
from flowfabric.policy import FixedBackoff
from flowfabric.states import SignalEffect
from flowfabric.testing import Clock
from tests import given
from tests.engine.events.facts import completed, emitted
from tests.engine.executions.suspended import suspend_holder, waiting_for_signal
from tests.engine.suspensions.given_suspended import (
    Suspended,
    accepted,
    leased,
    pending,
    suspend,
    suspended,
)
from tests.explained import Explained


async def read_history(db: Connection, execution: ExecutionId) -> list[HistoryEntry]:
    """The whole history; it is the same in pages of any size, forwards and backwards."""
    whole = await module.read_history(db, execution)
    assert whole.next_cursor is None
    for limit in (1, 2, 7):
        assert await walked(db, execution, limit) == whole.entries
    for limit in (2, 7, 100):
        backwards = await walked(db, execution, limit, newest_first=True)
        assert [without_error(each) for each in backwards[::-1]] == [
            without_error(each) for each in whole.entries
        ]
    return whole.entries


def without_error(entry: HistoryEntry) -> HistoryEntry:
    """Backwards, the error that a replay replaced is told by the event of the replay alone."""
    return msgspec.structs.replace(entry, details={})


async def walked(
    db: Connection, execution: ExecutionId, limit: int, **more: Any
) -> list[HistoryEntry]:
    """The entries of all pages, every page full but the last."""
    page = await module.read_history(db, execution, limit=limit, **more)
    entries = page.entries
    while page.next_cursor is not None:
        assert len(page.entries) == limit
        page = await module.read_history(
            db, execution, cursor=page.next_cursor, limit=limit, **more
        )
        entries += page.entries
    return entries


async def test_everything_that_happened_is_told_in_order(db: Connection, clock: Clock) -> None:
    await completed(db)  # somebody else
    began = await clock.now()
    lease = await given.claimed(db, creator_identity="ann@host", idempotency_key="k")
    await clock.advance(1)
    await release(db, [lease])
    await clock.advance(1)
    execution = lease.execution_id
    await emitted(db, "priority_changed", execution=execution, facts='{"old_priority": 0}')
    await clock.advance(1)
    [task] = await claim(db, given.OTHER, ttl=30)
    await clock.advance(1)
    await complete(db, [Completion(task.lease)])
    await emitted(db, "replayed", execution=execution)

    story = await read_history(db, execution)

    assert [(event.outbox, event.what, event.reason, event.by) for event in story] == [
        ("execution", "submitted", None, "ann@host"),
        ("lease", "acquired", None, "w-1"),
        ("lease", "released", "released", "w-1"),
        ("operator", "priority_changed", "because", "ann"),
        ("lease", "acquired", None, "w-2"),
        ("lease", "released", "completed", "w-2"),
        ("completion", "success", None, None),
        ("operator", "replayed", "because", "ann"),
    ]
    assert [(event.at - began).total_seconds() for event in story] == [0, 0, 1, 2, 3, 4, 4, 4]
    assert [event.lease_epoch for event in story] == [None, 1, 1, None, 3, 3, None, None]
    assert [event.attempt_index for event in story] == [None, 0, 0, None, 0, 0, None, None]
    assert [event.details for event in story if event.details] == [
        {"idempotency_key": "k"},
        {"old_priority": 0},
    ]


async def test_only_what_was_submitted_has_a_story(db: Connection) -> None:
    execution = await given.created(db)

    assert [event.what for event in await read_history(db, execution)] == ["submitted"]
    assert await read_history(db, ExecutionId.mint()) == []


async def test_a_failed_attempt_has_its_error_in_the_story(db: Connection) -> None:
    lease = await given.claimed(db, policy=given.retrying(backoff=FixedBackoff(delay=0)))
    await fail(db, [Failure(lease=lease, reason="KeyError: 'x'", category="flaky")])
    [task] = await claim(db, given.WORKER, ttl=30)
    await complete(db, [Completion(task.lease)])

    story = await read_history(db, lease.execution_id)

    assert [(event.what, event.reason, event.details) for event in story] == [
        ("submitted", None, {}),
        ("acquired", None, {}),
        ("released", "retry", {"error": "KeyError: 'x'", "category": "flaky"}),
        ("acquired", None, {}),
        ("released", "completed", {}),
        ("success", None, {}),
    ]


async def test_an_id_of_another_partition_is_another_execution(db: Connection) -> None:
    done = await completed(db)

    other = ExecutionId((done.partition_key + 1) % 256, done.uuid)

    assert await read_history(db, other) == []


@pytest.mark.session("reads the plan of a session with our settings")
async def test_a_story_is_found_by_indexes(db: Connection) -> None:
    done = await completed(db)
    text, names = positional(READ_HISTORY)
    given_values: dict[str, Any] = {
        "partition_key": done.partition_key,
        "execution_id": done.uuid,
        **dict.fromkeys(("lease", "completion", "operator", "signal"), 0),
        **dict.fromkeys(("leases", "completions", "operators", "signals", "submit"), True),
        "limit": 100,
    }

    plan = await db.fetch("EXPLAIN " + text, *[given_values[name] for name in names])

    lines = "\n".join(row[0] for row in plan)
    for outbox in ("lease_event", "operator_event", "signal_event"):
        assert f"{outbox}_execution" in lines
    assert "completion_event_created" in lines
    for table in ("attempt", "exec_body"):
        assert f"{table}_pkey" in lines
    assert "Seq Scan" not in lines


WHOLE_LIFE = [
    "submitted",
    "acquired",
    "released",
    "failed",
    "replayed",
    "priority_changed",
    "cancelled",
    "cancelled",  # the completion, and what the operator did
    "replayed",
    "acquired",
    "revoked",
    "lease_revoked",
    "acquired",
    "released",
    "success",
]


@pytest.mark.parametrize("seconds", [0, -1, 1], ids=["stands", "goes back", "goes on"])
async def test_events_come_in_the_order_in_which_they_were_written_whatever_the_clock_does(
    db: Connection, clock: Clock, seconds: int
) -> None:
    lease = await given.claimed(db, ttl=60)
    execution = lease.execution_id
    await clock.advance(seconds)
    await fail(db, [Failure(lease=lease, reason="boom")])
    controls: list[Callable[[], Awaitable[object]]] = [
        lambda: replay_execution(db, execution),
        lambda: change_priority(db, execution, 7),
        lambda: cancel_execution(db, execution, reason="no"),
        lambda: replay_execution(db, execution),
        lambda: claim(db, given.WORKER, ttl=60),
        lambda: revoke_lease(db, execution, reason="stuck"),
    ]
    for control in controls:
        await clock.advance(seconds)
        async with db.transaction():
            await control()
    await clock.advance(seconds)
    [task] = await claim(db, given.OTHER, ttl=60)
    await clock.advance(seconds)
    await complete(db, [Completion(task.lease)])

    story = await read_history(db, execution)

    assert [event.what for event in story] == WHOLE_LIFE


MANY_EVENTS = """
INSERT INTO ff.lease_event (
       execution_id, lease_id, route_id, lease_epoch, occurred_at_ms, attempt_index, partition_key,
       event_type, worker_instance_id)
SELECT $1, $1, 1, 1, n, 0, $2, 'renewed', 'w-1' FROM generate_series(1, $3::integer) AS n
"""


@pytest.mark.usefixtures("new_database")
@pytest.mark.parametrize("generic", [False, True])
async def test_a_page_of_a_very_long_history_reads_no_other_page(
    db: Connection, generic: bool
) -> None:
    lease = await given.claimed(db)
    execution = lease.execution_id
    await db.execute(MANY_EVENTS, execution.uuid, execution.partition_key, 5000)
    await db.execute("ANALYZE ff.lease_event")
    explained = Explained(db, generic=generic)

    first = await module.read_history(explained, execution, limit=50)  # type: ignore[arg-type]
    later = f"{4900}.0.0.0.0"
    page = await module.read_history(explained, execution, cursor=later, limit=50)  # type: ignore[arg-type]

    assert (len(first.entries), len(page.entries)) == (50, 50)
    assert max(cost.buffers for cost in explained.costs) < 200  # two or three for each entry


@pytest.mark.parametrize(
    "cursor", ["", "1", "1.2.3.4", "1.2.3.4.4", f"{2**63}.0.0.0.0", "-1.0.0.0.0"]
)
async def test_a_cursor_is_one_of_a_page(db: Connection, cursor: str) -> None:
    with pytest.raises(ValidationError, match="cursor"):
        await module.read_history(db, ExecutionId.mint(), cursor=cursor)


# Signals and suspensions.


async def sent(db: Connection, execution: ExecutionId, name: str) -> None:
    """A signal by name, which nothing waits for."""
    async with db.transaction():
        await lock_executions(db, [execution])
        event = NewSignalEvent(
            execution_id=execution,
            signal_id=new_uuid(),
            signal_name=name,
            effect=SignalEffect.BUFFERED_IN_INBOX,
            source_type="client",
            source_identity="",
        )
        await record_signal_events(db, [event])


def told(story: list[HistoryEntry]) -> list[str]:
    """What happened; of a signal its name."""
    return [event.details.get("signal_name", event.what) for event in story]


async def test_a_signal_is_told_with_its_name_its_effect_and_its_source(
    db: Connection, clock: Clock
) -> None:
    held = await suspended(db, Single("a", "go"))
    await accepted(db, held.waitpoints["a"], "stay", source_type="user", source_identity="ann")
    await accepted(db, held.waitpoints["a"], "go", source_type="webhook")

    story = await read_history(db, held.execution_id)

    signals = [event for event in story if event.outbox == "signal"]
    assert [(event.what, event.by, event.reason) for event in signals] == [
        ("appended_to_waitpoint", "ann", None),
        ("resume_condition_satisfied", "webhook", None),
    ]
    assert signals[0].details == {
        "signal_name": "stay",
        "source_type": "user",
        "waitpoint_id": str(held.waitpoint_id("a")),
    }
    assert (signals[0].attempt_index, signals[0].lease_epoch) == (None, None)


@pytest.mark.parametrize("seconds", [0, -1, 1], ids=["stands", "goes back", "goes on"])
async def test_a_suspended_life_is_told_in_order_whatever_the_clock_does(
    db: Connection, clock: Clock, seconds: int
) -> None:
    held = await suspended(db, Single("a", "go"))
    execution = held.execution_id
    await clock.advance(seconds)
    await accepted(db, held.waitpoints["a"], "stay")
    await clock.advance(seconds)
    await accepted(db, held.waitpoints["a"], "go")
    await clock.advance(seconds)
    [task] = await claim(db, given.OTHER, ttl=60)
    again = Suspended(task.lease, {"b": await pending(db, task.lease, "b")})
    await clock.advance(seconds)
    await suspend(db, again, Single("b"))
    await clock.advance(seconds)
    await accepted(db, again.waitpoints["b"], "last")
    await clock.advance(seconds)
    async with db.transaction():
        await cancel_execution(db, execution, reason="no")

    # Without a clock that goes on, what came during a lease cannot be told from what came after.
    assert told(await read_history(db, execution)) == [
        "submitted",
        "acquired",
        *(["stay", "released"] if seconds < 0 else ["released", "stay"]),
        "go",
        "resumable",
        "acquired",
        "released",
        "last",
        "resumable",
        "cancelled",
        "cancelled",
    ]


async def test_signals_stand_where_they_came(db: Connection, clock: Clock) -> None:
    lease = await leased(db, ttl=600)
    execution = lease.execution_id
    await clock.advance(1)
    await sent(db, execution, "while it runs")
    await clock.advance(1)
    held = Suspended(lease, {"a": await pending(db, lease)})
    await suspend(db, held, Single("a"))
    await clock.advance(1)
    await sent(db, execution, "while it waits")
    async with db.transaction():  # by a timeout: no event but that of the resume
        await lock_executions(db, [execution])
        await resume(db, [Resume(execution_id=execution)])
    await clock.advance(1)
    await sent(db, execution, "while it is resumable")
    async with db.transaction():
        await change_priority(db, execution, 7)
    [task] = await claim(db, given.OTHER, ttl=60)
    await clock.advance(1)
    await sent(db, execution, "while it runs again")
    await clock.advance(1)
    await complete(db, [Completion(task.lease)])

    assert told(await read_history(db, execution)) == [
        "submitted",
        "acquired",
        "while it runs",
        "released",
        "while it waits",
        "resumable",
        "while it is resumable",
        "priority_changed",
        "acquired",
        "while it runs again",
        "released",
        "success",
    ]


async def test_a_signal_before_the_first_claim_comes_before_it(db: Connection) -> None:
    execution = await given.created(db)
    await sent(db, execution, "early")
    [task] = await claim(db, given.WORKER, ttl=60)
    await complete(db, [Completion(task.lease)])

    assert told(await read_history(db, execution)) == [
        "submitted",
        "early",
        "acquired",
        "released",
        "success",
    ]


async def test_an_operators_resume_and_one_by_a_signal_are_told_in_order(
    db: Connection, clock: Clock
) -> None:
    execution = await waiting_for_signal(db)
    await clock.advance(1)
    async with db.transaction():
        await resume_execution(db, execution, actor="ann")
    [task] = await claim(db, given.WORKER, ttl=30)
    await suspend_holder(
        db, task.lease, keeps_waitpoints=True, awaits_signals=("approved",), signals_read=0
    )
    for name in ("other", "approved"):
        await clock.advance(1)
        async with db.transaction():
            await send_signal(db, NewSignal(execution_id=execution, signal_name=name))
    [task] = await claim(db, given.WORKER, ttl=30)
    await complete(db, [Completion(task.lease)])

    assert told(await read_history(db, execution)) == [
        "submitted",
        "acquired",
        "released",
        "resumed",
        "acquired",
        "released",
        "other",
        "approved",
        "resumable",
        "acquired",
        "released",
        "success",
    ]


async def test_a_resume_by_an_operator_is_what_the_operator_did(
    db: Connection, clock: Clock
) -> None:
    held = await suspended(db, Single("a"))
    async with db.transaction():
        await resume_execution(db, held.execution_id)
    [task] = await claim(db, given.OTHER, ttl=60)
    await complete(db, [Completion(task.lease)])
    async with db.transaction():
        await replay_execution(db, held.execution_id)

    assert told(await read_history(db, held.execution_id)) == [
        "submitted",
        "acquired",
        "released",
        "resumed",
        "acquired",
        "released",
        "success",
        "replayed",
    ]
