"""active → terminal(cancelled): the holder stops for good."""

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.cancel import Cancellation, Cancelled, cancel
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.policy import FixedBackoff
from flowfabric.testing import Clock
from tests import given


async def test_a_holder_cancels_its_execution(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    began = await clock.now_ms()
    await clock.advance(5)

    [answer] = await cancel(db, [Cancellation(lease, "the customer left")])

    assert answer == Cancelled(execution_id=lease.execution_id)
    assert await given.standing(db, lease.execution_id) == (
        "terminal/not_applicable/none/cancelled/attempt_terminal → cancelled"
    )
    stored, now = await given.row(db, lease.execution_id), await clock.now_ms()
    assert stored == stored | {
        "cancellation_reason": "the customer left",
        "cancelled_by": "worker",
        "failure_reason": None,
        "terminal_at_ms": now,
        "last_mutation_at_ms": now,
        "lease_epoch": lease.lease_epoch + 1,
        "worker_instance_id": None,
        "lease_expires_at_ms": None,
    }
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("revoked", "cancelled"),
    ]
    assert await given.completion_events(db, lease.execution_id) == ["cancelled"]
    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt == attempt | {
        "outcome": "cancelled",
        "started_at_ms": began,
        "ended_at_ms": now,
        "lease_epoch": lease.lease_epoch,
        "result": None,
    }


async def test_each_of_a_batch_has_its_own_reason(db: Connection) -> None:
    leases = [await given.claimed(db) for _ in range(3)]

    await cancel(db, [Cancellation(lease, f"reason {n}") for n, lease in enumerate(leases)])

    for n, lease in enumerate(leases):
        stored = await given.row(db, lease.execution_id)
        assert stored["cancellation_reason"] == f"reason {n}"


async def test_a_reason_is_made_storable(db: Connection) -> None:
    lease = await given.claimed(db)

    await cancel(db, [Cancellation(lease, "a\x00b\ud800" + "x" * 1_000_000)])

    reason = (await given.row(db, lease.execution_id))["cancellation_reason"]
    assert reason.startswith("a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}")
    assert len(reason.encode()) <= 16 * 1024


async def test_a_cancelled_retry_leaves_the_earlier_attempt_as_it_was(db: Connection) -> None:
    lease = await given.claimed(db, policy=given.retrying(backoff=FixedBackoff(delay=0)))
    await fail(db, [Failure(lease=lease, reason="boom")])
    [retry] = await claim(db, given.WORKER, ttl=30)

    await cancel(db, [Cancellation(retry.lease, "enough")])

    ledger = await given.attempts(db, lease.execution_id)
    assert [(a["attempt_index"], a["outcome"]) for a in ledger] == [(0, "retry"), (1, "cancelled")]
