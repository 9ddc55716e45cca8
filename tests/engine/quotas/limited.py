"""Where a test of limits begins: a limit, and executions of its keys."""

from __future__ import annotations

from typing import Any

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import Claimant, Claimed, claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.create_execution import NewExecution, create_execution
from flowfabric.engine.quotas.create_quota_policy import create_quota_policy
from flowfabric.engine.quotas.unblock_keys import unblock_keys
from flowfabric.ids import ExecutionId
from flowfabric.limits import QuotaLimits, quota_key_id, quota_policy_id
from tests import given

LIMIT = quota_policy_id("default", "per-customer")


async def limit(db: Connection, cap: int = 0, *, rate: int = 0, window: float = 0) -> None:
    """The limit `per-customer`."""
    limits = QuotaLimits(max_concurrent=cap, max_requests_per_window=rate, window_seconds=window)
    await create_quota_policy(db, "per-customer", limits)


def new(key: str | None = "c", **fields: Any) -> NewExecution:
    return given.new(quota_policy_id=LIMIT, limit_key=key, **fields)


async def created(db: Connection, *keys: str, **fields: Any) -> list[ExecutionId]:
    """One execution for each key, all by one call."""
    batch = [new(key, **fields) for key in keys]
    await create_execution(db, batch)
    return [each.execution_id for each in batch]


async def claimed(
    db: Connection, limit: int = 10, worker: Claimant = given.WORKER
) -> list[Claimed]:
    return await claim(db, worker, ttl=30, limit=limit)


async def claimed_ids(db: Connection, limit: int = 10) -> list[ExecutionId]:
    return [each.lease.execution_id for each in await claimed(db, limit)]


async def ended(db: Connection, tasks: list[Claimed]) -> None:
    """They have ended, and their worker let the next ones go."""
    await complete(db, [Completion(each.lease) for each in tasks])
    await unblock_keys(db, {each.quota_key_id for each in tasks if each.quota_key_id is not None})


def key(name: str) -> int:
    return quota_key_id(LIMIT, name)


async def states(db: Connection, ids: list[ExecutionId]) -> list[str]:
    return [(await given.row(db, each))["public_state"] for each in ids]
