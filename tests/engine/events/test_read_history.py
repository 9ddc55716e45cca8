"""The story of one execution, from all outboxes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.db.rows import Connection, positional
from flowfabric.engine.events.read_history import READ_HISTORY, read_history
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.change_priority import change_priority
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.engine.operators.revoke_lease import revoke_lease
from flowfabric.ids import ExecutionId
from flowfabric.policy import FixedBackoff
from flowfabric.testing import Clock
from tests import given
from tests.engine.events.facts import completed, emitted


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
    }

    plan = await db.fetch("EXPLAIN " + text, *[given_values[name] for name in names])

    lines = "\n".join(row[0] for row in plan)
    for outbox in ("lease_event", "completion_event", "operator_event"):
        assert f"{outbox}_execution" in lines
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
