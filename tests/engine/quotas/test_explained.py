"""What `explain` says of an execution that a limit holds back, and what a claim by id says."""

from __future__ import annotations

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.explain_execution import explain_execution
from flowfabric.engine.executions.explanation import ReasonCode
from flowfabric.engine.lifecycle.claim_by_id import LeaseRequest, claim_by_id
from flowfabric.engine.lifecycle.lease import LeaseHandleKind
from flowfabric.engine.lifecycle.lock_for_claim import require_for_claim
from flowfabric.errors import ExecutionNotLeaseable
from flowfabric.states import PublicState
from flowfabric.testing import Clock
from tests.engine.quotas import limited


async def test_it_names_the_limit_the_key_the_holders_and_how_many_come_first(
    db: Connection,
) -> None:
    await limited.limit(db, cap=1)
    ids = await limited.created(db, *"aaa")
    [task] = await limited.claimed(db)

    [reason, *_] = (await explain_execution(db, ids[2])).reasons

    assert "limit 'per-customer', key 'a': 1 of 1 runs" in reason.message
    assert str(task.lease.execution_id) in reason.message
    assert reason.message.endswith("1 is before it")
    assert reason.remedy.endswith("ff limits set per-customer --concurrency N")


async def test_it_says_when_a_rate_lets_the_next_one_start(db: Connection, clock: Clock) -> None:
    await limited.limit(db, cap=5, rate=1, window=60)
    ids = await limited.created(db, *"aa")
    await limited.ended(db, await limited.claimed(db))

    [reason, *_] = (await explain_execution(db, ids[1])).reasons

    assert "1 starts per 60 s used, next at" in reason.message
    assert reason.remedy.endswith("ff limits set per-customer --concurrency 5 --rate N/60s")
    assert reason.clears_at is not None
    assert (reason.clears_at - await clock.now()).total_seconds() == 60


async def test_one_that_no_claim_has_found_over_its_limit_is_explained_by_the_limit(
    db: Connection,
) -> None:
    await limited.limit(db, cap=1)
    await limited.created(db, "a")
    ids = [(await limited.created(db, "a"))[0] for _ in range(2)]
    assert (await explain_execution(db, ids[1])).reasons[0].why == ReasonCode.NO_WORKER

    await limited.claimed(db, 1)

    explained = await explain_execution(db, ids[1])
    assert explained.public_state == PublicState.WAITING
    assert "limit 'per-customer', key 'a': 1 of 1 runs" in explained.reasons[0].message
    assert explained.reasons[0].message.endswith("1 is before it")


async def test_a_claim_by_id_is_refused_by_the_same_limit(db: Connection) -> None:
    await limited.limit(db, cap=1)
    [first] = await limited.created(db, "a")
    [second] = await limited.created(db, "a")
    request = LeaseRequest(worker_id="w", worker_instance_id="w-1", lease_ttl=30)
    await limited.claimed(db)
    [third] = await limited.created(db, "a")

    async with db.transaction():
        seen = await require_for_claim(db, third)
        with pytest.raises(ExecutionNotLeaseable, match="limit 'per-customer', key 'a': 1 of 1"):
            await claim_by_id(
                db,
                third,
                request,
                lease_epoch=seen.lease_epoch,
                kind=LeaseHandleKind.FRESH,
                quota_key_id=seen.quota_key_id,
            )
    held_back = await require_for_claim(db, second)
    assert "limit 'per-customer', key 'a'" in held_back.not_eligible
    assert first
