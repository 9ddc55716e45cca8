"""The best claimable execution of a lane is reserved for one worker; its state does not change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.grants.grant import ClaimGrant, claim_grant
from flowfabric.engine.grants.stored_grant import DEFAULT_TTL, GrantTerms, signing_key, store_grant
from flowfabric.engine.keys.key import Key
from flowfabric.ids import ExecutionId
from flowfabric.states import GrantKind

# Executions whose budget is spent are blocked, and not found. Nor are executions with a claim grant
# that has not expired. Executions with a reclaim grant are found, because any worker may claim
# them, but they get no second grant.
CLAIM_FOR_WORKER: Final[LiteralString] = """
-- grants.claim_for_worker
SELECT e.partition_key, e.execution_id, e.lease_epoch, ff.now_ms() AS now_ms,
       NOT EXISTS (SELECT FROM ff.unused_grant g
                    WHERE (g.partition_key, g.execution_id) = (e.partition_key, e.execution_id)
                      AND g.expires_at_ms > ff.now_ms()) AS grantable
  FROM ff.claimable_in_budget(ARRAY[%(lane_id)s]::text[], %(namespace)s, NULL,
                              %(capabilities)s::text[], %(wanted)s, '', false) AS best
  JOIN ff.ready r ON r.ctid = best.place
  JOIN ff.exec_core e USING (partition_key, execution_id)
 ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
"""

_WANTED: Final = (1, 10, 100, 1000)
"""How many executions are looked at: more only if the ones before could not be granted."""


class _Found(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    lease_epoch: int
    now_ms: int
    grantable: bool


async def claim_for_worker(
    conn: Connection,
    *,
    lane_id: str,
    worker_id: str,
    worker_instance_id: str,
    worker_capabilities: Sequence[str] = (),
    grant_ttl: float | timedelta = DEFAULT_TTL,
    namespace: str = "default",
) -> ClaimGrant | None:
    """A grant to claim the best execution of the lane; None if there is nothing to claim.

    Highest priority first, then the oldest, among the executions that the capabilities of the
    worker cover and that have no grant. Needs a transaction. The execution itself is not changed:
    once the grant has expired unused, any worker may claim it. Raises `ValidationError`
    (capabilities, names, a ttl that is not 0.001 to 60 s), and `Unavailable` if there is no key to
    sign with.
    """
    terms = GrantTerms(
        worker_id=worker_id,
        worker_instance_id=worker_instance_id,
        lane_id=lane_id,
        worker_capabilities=worker_capabilities,
        grant_ttl=grant_ttl,
    )
    key = await signing_key(conn, "claim_for_worker")
    for wanted in _WANTED:
        found = await fetch_all(
            conn,
            CLAIM_FOR_WORKER,
            _Found,
            lane_id=lane_id,
            namespace=namespace,
            capabilities=list(worker_capabilities),
            wanted=wanted,
        )
        for row in found:
            grant = await _grant(conn, key, row, terms) if row.grantable else None
            if grant is not None:
                return grant
        if len(found) < wanted:
            return None
    return None


async def _grant(conn: Connection, key: Key, row: _Found, terms: GrantTerms) -> ClaimGrant | None:
    """The grant; None if another grant was committed before this row was locked."""
    execution_id = ExecutionId(row.partition_key, row.execution_id)
    stored = await store_grant(
        conn,
        key,
        GrantKind.CLAIM,
        execution_id,
        terms,
        now_ms=row.now_ms,
        lease_epoch=row.lease_epoch,
    )
    return None if stored is None else claim_grant(stored)
