"""Where tests of grants begin: a key that signs, grants of both kinds, leases that were lost."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.claim_execution import claim_execution
from flowfabric.engine.grants.grant import ClaimGrant, ReclaimGrant
from flowfabric.engine.grants.issue_claim_grant import issue_claim_grant
from flowfabric.engine.grants.issue_reclaim_grant import issue_reclaim_grant
from flowfabric.engine.grants.reclaim_execution import reclaim_execution
from flowfabric.engine.keys.seed_waitpoint_hmac_secret import seed_waitpoint_hmac_secret
from flowfabric.engine.lifecycle.claim_by_id import ClaimedById
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from tests import given

SECRET = "5e" * 32
TERMS: dict[str, Any] = {
    "lane_id": "default",
    "worker_id": "w",
    "worker_instance_id": "w-1",
    "worker_capabilities": [],
    "grant_ttl": 10,
}
BAD_TERMS: list[tuple[dict[str, Any], str]] = [
    ({"worker_capabilities": ["a,b"], "worker_id": ""}, "worker:comma_in_token"),
    ({"worker_capabilities": [""]}, "worker:empty_token"),
    ({"worker_capabilities": "gpu"}, "worker:not_array"),
    ({"worker_id": ""}, "worker_id"),
    ({"worker_id": "a b"}, "worker_id"),
    ({"worker_instance_id": "x\x00"}, "worker_instance_id"),
    ({"lane_id": ""}, "lane_id"),
    ({"lane_id": "größe"}, "lane_id"),
    ({"grant_ttl": 0}, "grant_ttl"),
    ({"grant_ttl": -1}, "grant_ttl"),
    ({"grant_ttl": 60.001}, "grant_ttl"),
    ({"grant_ttl": True}, "grant_ttl"),
    ({"grant_ttl": "10"}, "grant_ttl"),
]
BAD_GROUNDS: list[tuple[dict[str, Any], str]] = [
    ({"capability_hash": ""}, "capability_hash"),
    ({"route_snapshot_json": "{"}, "route_snapshot_json"),
    ({"route_snapshot_json": '"\x00"'}, "route_snapshot_json"),
    ({"admission_summary": "\ud800"}, "admission_summary"),
]
GROUNDS: dict[str, Any] = {
    "capability_hash": "c0ffee",
    "route_snapshot_json": '{"zone": "a"}',
    "admission_summary": "two budgets",
}


async def keyed(db: Connection, kid: str = "k1") -> None:
    """A key that signs."""
    await seed_waitpoint_hmac_secret(db, kid, SECRET)


async def claim_granted(db: Connection, execution_id: ExecutionId, **terms: Any) -> ClaimGrant:
    """A grant to claim, for worker w."""
    async with db.transaction():
        answer = await issue_claim_grant(db, execution_id, **TERMS | terms)
    assert isinstance(answer, ClaimGrant)
    return answer


async def reclaim_granted(db: Connection, execution_id: ExecutionId, **terms: Any) -> ReclaimGrant:
    """A grant to reclaim, for worker w."""
    async with db.transaction():
        answer = await issue_reclaim_grant(db, execution_id, **TERMS | terms)
    assert isinstance(answer, ReclaimGrant)
    return answer


async def lost(db: Connection, clock: Clock, **fields: Any) -> Lease:
    """A lease that ran out and that nobody has taken back."""
    lease = await given.claimed(db, ttl=30, **fields)
    await clock.advance(31)
    return lease


async def claim_it(db: Connection, execution_id: ExecutionId, **more: Any) -> ClaimedById:
    """`claim_execution` by process w-1 of worker w, in a transaction of its own."""
    fields: dict[str, Any] = {
        "worker_id": "w",
        "worker_instance_id": "w-1",
        "expected_attempt_index": 0,
        "lease_ttl": 30,
    }
    async with db.transaction():
        return await claim_execution(db, execution_id, **fields | more)


async def reclaim_it(db: Connection, execution_id: ExecutionId, **more: Any) -> Any:
    """`reclaim_execution` by process w-2 of worker w, in a transaction of its own."""
    fields: dict[str, Any] = {"worker_id": "w", "worker_instance_id": "w-2", "lease_ttl": 30}
    async with db.transaction():
        return await reclaim_execution(db, execution_id, **fields | more)


async def grants(db: Connection) -> list[dict[str, Any]]:
    """The stored grants, the oldest first."""
    return [
        dict(row) for row in await db.fetch("SELECT * FROM ff.claim_grant ORDER BY issued_at_ms")
    ]


@asynccontextmanager
async def unchanged(db: Connection) -> AsyncGenerator[None]:
    """Whatever happens inside writes nothing."""
    before = await given.everything(db)
    yield
    assert await given.everything(db) == before
