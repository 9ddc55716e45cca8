"""Whatever leases or ends an execution uses up its grants."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.grant import ClaimGrant, ReclaimGrant
from flowfabric.engine.grants.verify_grant import verify_grant
from flowfabric.engine.lifecycle.claim import Claimant, claim
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.engine.operators.revoke_lease import revoke_lease
from flowfabric.errors import InvalidClaimGrant, InvalidGrant
from flowfabric.ids import ExecutionId
from flowfabric.states import TerminalOutcome
from flowfabric.testing import Clock
from tests import given
from tests.engine.grants import granted
from tests.engine.grants.granted import claim_granted, claim_it, reclaim_granted, reclaim_it
from tests.engine.lifecycle.fenced import LETTING_GO, Operation

LASTING = 60
"""Seconds that a grant of these tests is valid, unless it is used up."""
OTHER = Claimant(worker_id="other", worker_instance_id="other-1", lanes=("default",))


@pytest.fixture(autouse=True)
async def key(db: Connection, clock: Clock) -> None:
    await granted.keyed(db)


async def is_used_up(db: Connection, grant: ClaimGrant | ReclaimGrant) -> bool:
    try:
        await verify_grant(db, grant)
    except InvalidGrant as fault:
        return fault.code == "grant_unknown"
    return False


async def claimed_by(db: Connection, claimant: Claimant) -> list[ExecutionId]:
    return [task.lease.execution_id for task in await claim(db, claimant, ttl=30, limit=10)]


async def test_after_a_crash_of_the_worker_with_the_grant_any_worker_claims_within_a_lease(
    db: Connection, clock: Clock
) -> None:
    execution_id = await given.created(db)
    await claim_granted(db, execution_id, grant_ttl=LASTING)
    await claim(db, given.WORKER, ttl=3)  # the worker of the grant, which crashes
    await clock.advance(3)
    await expire_leases(db, limit=10)

    assert await claimed_by(db, OTHER) == [execution_id]


async def test_a_plain_claim_by_its_worker_uses_the_grant_up(db: Connection) -> None:
    execution_id = await given.created(db)
    grant = await claim_granted(db, execution_id, grant_ttl=LASTING)
    assert not await is_used_up(db, grant)

    await claim(db, given.WORKER, ttl=30)

    assert await is_used_up(db, grant)


@pytest.mark.parametrize("operation", LETTING_GO.values(), ids=LETTING_GO)
async def test_what_its_holder_gave_up_is_not_reserved_by_the_grant_it_was_claimed_with(
    db: Connection, clock: Clock, operation: Operation
) -> None:
    execution_id = await given.created(db, policy=given.retrying())
    await claim_granted(db, execution_id, grant_ttl=LASTING)
    [task] = await claim(db, given.WORKER, ttl=30)
    await operation(db, [task.lease])
    if (await given.row(db, execution_id))["lifecycle_phase"] == "terminal":
        async with db.transaction():
            await replay_execution(db, execution_id)
    await db.execute("UPDATE ff.exec_core SET delay_until_ms = 1 WHERE delay_until_ms > 0")
    await promote_due(db, limit=10)

    assert await claimed_by(db, OTHER) == [execution_id]


async def _cancelled(db: Connection, execution_id: ExecutionId) -> None:
    async with db.transaction():
        await cancel_execution(db, execution_id, reason="no")


async def _expired(db: Connection, execution_id: ExecutionId) -> None:
    await db.execute("UPDATE ff.exec_core SET deadline_at_ms = created_at_ms")
    assert await expire_executions(db, 10) == 1


async def _skipped(db: Connection, execution_id: ExecutionId) -> None:
    await terminalize(db, [execution_id], outcome=TerminalOutcome.SKIPPED)


@pytest.mark.parametrize("end", [_cancelled, _expired, _skipped])
async def test_an_end_before_any_claim_uses_the_grant_up(
    db: Connection, end: Callable[[Connection, ExecutionId], Awaitable[None]]
) -> None:
    execution_id = await given.created(db)
    grant = await claim_granted(db, execution_id, grant_ttl=LASTING)

    await end(db, execution_id)

    assert await is_used_up(db, grant)
    await db.execute("UPDATE ff.exec_core SET deadline_at_ms = NULL")
    async with db.transaction():
        await replay_execution(db, execution_id)
    assert await is_used_up(db, grant)
    assert await claimed_by(db, OTHER) == [execution_id]


async def test_a_used_grant_does_not_claim_again(db: Connection) -> None:
    execution_id = await given.created(db)
    await claim_granted(db, execution_id, grant_ttl=LASTING)
    [task] = await claim(db, given.WORKER, ttl=30)
    await LETTING_GO["fail_retry"](db, [task.lease])
    async with db.transaction():
        await replay_execution(db, execution_id)

    with pytest.raises(InvalidClaimGrant):
        await claim_it(db, execution_id)


async def test_once_a_grant_is_used_up_another_worker_may_have_one(db: Connection) -> None:
    execution_id = await given.created(db)
    await claim_granted(db, execution_id, grant_ttl=LASTING)
    [task] = await claim(db, given.WORKER, ttl=30)
    await LETTING_GO["release"](db, [task.lease])

    grant = await claim_granted(db, execution_id, worker_id="other", grant_ttl=LASTING)

    assert not await is_used_up(db, grant)
    assert await claimed_by(db, given.WORKER) == []


# Reclaim grants.


async def test_a_plain_claim_uses_a_reclaim_grant_up(db: Connection, clock: Clock) -> None:
    lease = await granted.lost(db, clock)
    grant = await reclaim_granted(db, lease.execution_id, grant_ttl=LASTING)
    await expire_leases(db, limit=10)
    assert not await is_used_up(db, grant)

    assert await claimed_by(db, OTHER) == [lease.execution_id]

    assert await is_used_up(db, grant)


@pytest.mark.parametrize("voided", ["expired", "revoked", "not yet"])
async def test_a_reclaim_grant_outlasts_the_end_of_the_lost_lease(
    db: Connection, clock: Clock, voided: str
) -> None:
    lease = await granted.lost(db, clock)
    await reclaim_granted(db, lease.execution_id, grant_ttl=timedelta(seconds=LASTING))
    if voided == "expired":
        await expire_leases(db, limit=10)
    elif voided == "revoked":
        async with db.transaction():
            await revoke_lease(db, lease.execution_id, reason="stuck")

    answer: Any = await reclaim_it(db, lease.execution_id)

    assert answer.lease.execution_id == lease.execution_id
