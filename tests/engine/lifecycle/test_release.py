"""active → runnable: the holder hands back."""

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.release import Released, release
from flowfabric.policy import ExecutionPolicy
from flowfabric.testing import Clock
from tests import given


async def test_a_released_execution_is_claimable_at_once(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    began = await clock.now_ms()
    await clock.advance(5)

    [answer] = await release(db, [lease])

    assert answer == Released(execution_id=lease.execution_id)
    assert await given.standing(db, lease.execution_id) == (
        "runnable/eligible_now/waiting_for_worker/none/attempt_interrupted → waiting"
    )
    stored, now = await given.row(db, lease.execution_id), await clock.now_ms()
    assert stored == stored | {
        "attempt_index": 0,
        "total_attempt_count": 1,
        "retry_count": 0,
        "lease_reclaim_count": 0,
        "lease_epoch": lease.lease_epoch + 1,
        "delay_until_ms": None,
        "started_at_ms": began,
        "last_mutation_at_ms": now,
    }
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("revoked", "released"),
    ]
    assert await given.completion_events(db, lease.execution_id) == []
    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt == attempt | {
        "attempt_index": 0,
        "outcome": "lease_revoked",
        "started_at_ms": began,
        "ended_at_ms": now,
        "lease_epoch": lease.lease_epoch,
    }
    [task] = await claim(db, given.OTHER, ttl=30)
    assert task.lease.execution_id == lease.execution_id


async def test_handing_back_never_uses_up_the_reclaims(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, policy=ExecutionPolicy(max_reclaim_count=1))
    for _ in range(5):
        await release(db, [lease])
        [task] = await claim(db, given.WORKER, ttl=30)
        lease = task.lease
    await clock.advance(31)

    await expire_leases(db, limit=10)

    assert await given.public_state(db, lease.execution_id) == "waiting"


async def test_a_released_execution_keeps_its_place_in_the_queue(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db)
    await clock.advance(1)
    await given.created(db)

    await release(db, [lease])

    [task] = await claim(db, given.OTHER, ttl=30)
    assert task.lease.execution_id == lease.execution_id
