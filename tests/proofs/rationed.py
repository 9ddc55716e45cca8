"""Limits and budgets in a crowd: all that they hold back stays so; then a few have room again.

Made by the operations themselves, but for the counts of starts and admissions.
"""

from __future__ import annotations

from typing import Final

from flowfabric.budgets import budget_id
from flowfabric.db.rows import Connection
from flowfabric.engine.budgets.create_budget import create_budget
from flowfabric.engine.budgets.record_spend import record_spend
from flowfabric.engine.lifecycle.claim import Claimant, Claimed, claim
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy
from tests import given
from tests.engine.quotas import limited

_FEW: Final = 5
_DAY: Final = 86_400
_LANE: Final = "rationed"
_WORKER: Final = Claimant(worker_id="w", worker_instance_id="w-1", lanes=(_LANE,))

_ADMITTED: Final = """
INSERT INTO ff.quota_window (partition_key, quota_key_id, admitted_at_ms)
SELECT partition_key, quota_key_id, ff.now_ms() FROM ff.quota_key;
INSERT INTO ff.quota_admitted (
       partition_key, quota_key_id, quota_policy_id, execution_id, execution_partition,
       admitted_at_ms, expires_at_ms)
SELECT partition_key, quota_key_id, quota_policy_id, gen_random_uuid(), 0, ff.now_ms(),
       ff.now_ms() + 86400000 FROM ff.quota_key;
"""
_HELD: Final = """
SELECT count(*) FILTER (WHERE eligibility_state = 'blocked_by_quota'),
       count(*) FILTER (WHERE eligibility_state = 'blocked_by_budget') FROM ff.exec_core
"""
_DUE: Final = f"""
UPDATE ff.quota_window SET admitted_at_ms = 1
 WHERE start_no IN (SELECT start_no FROM ff.quota_window ORDER BY start_no LIMIT {_FEW});
UPDATE ff.quota_admitted SET admitted_at_ms = 1, expires_at_ms = 1
 WHERE execution_id IN (SELECT execution_id FROM ff.quota_admitted LIMIT {_FEW});
UPDATE ff.budget_policy SET next_reset_at_ms = 1
 WHERE budget_id IN (SELECT budget_id FROM ff.budget_policy ORDER BY budget_id LIMIT {_FEW});
UPDATE ff.budget_usage SET current_value = 0
 WHERE budget_id IN (SELECT budget_id FROM ff.budget_policy ORDER BY budget_id DESC LIMIT {_FEW});
UPDATE ff.budget_usage_history SET begins_at_ms = 0
 WHERE budget_id IN (SELECT budget_id FROM ff.budget_policy ORDER BY budget_id LIMIT {_FEW});
UPDATE ff.budget_usage_dedup SET expires_at_ms = 1
 WHERE dedup_key IN (SELECT dedup_key FROM ff.budget_usage_dedup LIMIT {_FEW});
"""


async def rationed(db: Connection, *, live: int) -> list[ExecutionId]:
    """So many keys of a limit and so many spent budgets, each of which holds an execution back.

    Each key has another execution that may be claimed, a start and an admission; each budget has
    one that spent it. The answer are some of the former and some of the latter.
    """
    names = [f"budget-{number}" for number in range(live)]
    spenders = [given.new(lane_id="spenders") for _ in names]
    attached = [
        given.new(lane_id=_LANE, policy=ExecutionPolicy(budget_ids=(name,))) for name in names
    ]
    keys = [f"key-{number}" for number in range(live)]
    pairs = [limited.new(key, lane_id=_LANE) for key in keys for _ in range(2)]
    async with db.transaction():
        await limited.limit(db, 1)
        await create_execution(db, [*spenders, *attached, *pairs])
        for name, spender in zip(names, spenders, strict=True):
            await _spent(db, name, spender.execution_id)
    leases: list[Lease] = []
    while tasks := await _claimed(db, live):
        leases += [task.lease for task in tasks]
    async with db.transaction():  # the leases of the crowd are those of `crowd`
        await release(db, leases)
    await db.execute(_ADMITTED)
    held = await db.fetchrow(_HELD)
    assert tuple(held or ()) == (live, live), held
    first = [lease.execution_id for lease in leases[:_FEW]]
    return [*first, *(each.execution_id for each in spenders[:_FEW])]


async def _claimed(db: Connection, limit: int) -> list[Claimed]:
    async with db.transaction():
        return await claim(db, _WORKER, ttl=_DAY, limit=limit)


async def _spent(db: Connection, name: str, spender: ExecutionId) -> None:
    await create_budget(
        db, name, dimensions=["tokens"], hard_limits=[1], soft_limits=[0], reset_interval=_DAY
    )
    await record_spend(db, budget_id(name), spender, {"tokens": 1}, idempotency_key=name)


async def rations_due(db: Connection, some: list[ExecutionId]) -> None:
    """A few have ended, a few budgets have room or a new period, and a few rows are old."""
    await db.execute(_DUE)
    for execution_id in some:
        async with db.transaction():
            await cancel_execution(db, execution_id, reason="no")
