"""suspended → runnable: the suspension is closed, and the same attempt can be claimed."""

from uuid import uuid4

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.move_to_suspended import (
    MovedToSuspended,
    SuspendedLease,
    move_to_suspended,
)
from flowfabric.engine.lifecycle.resume import Resume, resume
from flowfabric.errors import ExecutionNotActive, LeaseExpired, NotFound, StaleLease
from flowfabric.ids import ExecutionId
from flowfabric.states import AttemptType, BlockingReason, PublicState
from flowfabric.testing import Clock
from tests import given
from tests.engine.suspensions import parked
from tests.engine.suspensions.parked import ask, handler


@pytest.fixture(autouse=True)
async def key(db: Connection, clock: Clock) -> None:
    await parked.keyed(db)


# active → suspended.


async def test_the_fence_decides_who_is_suspended(db: Connection, clock: Clock) -> None:
    lease, late = await given.claimed(db, ttl=60), await given.claimed(db, ttl=30)
    elsewhere = msgspec.structs.replace(lease, execution_id=ExecutionId.mint())
    forged = msgspec.structs.replace(lease, lease_id=uuid4())
    await clock.advance(30)

    answers = await move_to_suspended(
        db,
        [
            SuspendedLease(lease=each, blocking_reason=BlockingReason.WAITING_FOR_SIGNAL)
            for each in (elsewhere, forged, late, lease)
        ],
    )

    assert [type(each) for each in answers] == [
        NotFound,
        StaleLease,
        LeaseExpired,
        MovedToSuspended,
    ]
    assert await given.public_state(db, lease.execution_id) == "suspended"


async def test_the_same_call_again_after_a_lost_answer_is_answered_again(db: Connection) -> None:
    lease = await given.claimed(db)
    asked = [SuspendedLease(lease=lease, blocking_reason=BlockingReason.PAUSED_BY_POLICY)]
    await move_to_suspended(db, asked)
    before = await given.everything(db)

    [again] = await move_to_suspended(db, asked)

    assert again == MovedToSuspended(execution_id=lease.execution_id, repeated=True)
    assert await given.everything(db) == before
    await resume(db, [Resume(execution_id=lease.execution_id)])
    [gone] = await move_to_suspended(db, asked)
    assert isinstance(gone, ExecutionNotActive)


# suspended → runnable.


async def test_a_claim_continues_the_attempt(db: Connection, clock: Clock) -> None:
    began = await clock.now_ms()
    held = await parked.parked(db)
    await clock.advance(60)

    states = await resume(db, [Resume(execution_id=held.id)])

    assert states == {held.id: PublicState.RESUMABLE}
    [task] = await claim(db, given.OTHER, ttl=30)
    assert (task.lease.attempt_index, task.attempt_type) == (0, AttemptType.INITIAL)
    assert task.lease.lease_epoch == held.lease.lease_epoch + 1
    row = await given.row(db, held.id)
    assert row == row | {
        "attempt_started_at_ms": began,
        "started_at_ms": began,
        "total_attempt_count": 1,
        "retry_count": 0,
        "lease_reclaim_count": 0,
        "resume_pending": False,
    }
    await complete(db, [Completion(task.lease, b"done")])
    [attempt] = await given.attempts(db, held.id)
    assert (attempt["outcome"], attempt["result"]) == ("success", b"done")
    assert await given.completion_events(db, held.id) == ["resumable", "success"]


async def test_subscribers_are_told_and_no_dispatch_is(db: Connection, clock: Clock) -> None:
    held = await parked.parked(db)

    await resume(db, [Resume(execution_id=held.id)])

    [event] = await db.fetch("SELECT * FROM ff.completion_event")
    assert (event["outcome"], event["flow_id"], event["dispatched_at_ms"]) == (
        "resumable",
        None,
        await clock.now_ms(),
    )


async def test_only_suspended_ones_go_on(db: Connection) -> None:
    held = await parked.suspended(db, ask(await given.claimed(db)))
    running = await given.claimed(db)
    before = await given.row(db, running.execution_id)

    states = await resume(
        db,
        [Resume(execution_id=each) for each in (running.execution_id, held.id, ExecutionId.mint())],
        close_reason="why not",
        records_event=False,
    )

    assert states == {held.id: PublicState.RESUMABLE}
    assert await parked.closed(db, held.id) == ("why not", {"why not"})
    assert await given.row(db, running.execution_id) == before
    assert await given.completion_events(db, held.id) == []
    assert await resume(db, [Resume(execution_id=held.id)]) == {}
    assert await resume(db, []) == {}


async def test_every_open_waitpoint_is_closed_unless_a_handler_keeps_them(
    db: Connection,
) -> None:
    one, two = await given.claimed(db), await given.claimed(db)
    for lease in (one, two):
        await parked.pending(db, lease, "ahead")
    await parked.suspended(db, ask(one))
    await parked.suspended(db, handler(two, "go"))

    await resume(db, [Resume(execution_id=each.execution_id) for each in (one, two)])

    states = [
        {
            row["waitpoint_key"]: row["state"]
            for row in await parked.waitpoints(db, each.execution_id)
        }
        for each in (one, two)
    ]
    assert states == [{"ahead": "closed", "approval": "closed"}, {"ahead": "pending"}]
    assert await parked.broken(db) == []
