"""Runnable and staying so: the best claimable execution is promised to one worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.grants.grant import ClaimGrant, claim_grant
from flowfabric.engine.grants.stored_grant import Terms, signing_key, store_grant
from flowfabric.engine.keys.key import Key
from flowfabric.ids import ExecutionId
from flowfabric.states import GrantKind

# A promise to anybody hides an execution here; one that was granted for a reclaim is still found,
# and told apart, because only whoever wants a new grant passes it over.
CLAIM_FOR_WORKER: Final[LiteralString] = """
-- grants.claim_for_worker
SELECT best.partition_key, best.execution_id, ff.now_ms() AS now_ms,
       NOT EXISTS (SELECT FROM ff.claim_grant g
                    WHERE (g.partition_key, g.execution_id)
                        = (best.partition_key, best.execution_id)
                      AND g.expires_at_ms > ff.now_ms()) AS free
  FROM ff.claimable(ARRAY[%(lane_id)s]::text[], %(namespace)s, NULL,
                    %(capabilities)s::text[], %(wanted)s) AS best
  LEFT JOIN ff.exec_core e USING (partition_key, execution_id)
 ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
"""

_WANTED: Final = (1, 10, 100, 1000)
"""How many are looked at: more only after others were granted what was found."""


class _Found(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    now_ms: int
    free: bool


async def claim_for_worker(
    conn: Connection,
    *,
    lane_id: str,
    worker_id: str,
    worker_instance_id: str,
    worker_capabilities: Sequence[str] = (),
    grant_ttl_ms: int = 5000,
    namespace: str = "default",
) -> ClaimGrant | None:
    """A grant to claim the best execution of the lane; None where there is nothing to claim.

    Highest priority first, then the oldest, of what the worker's capabilities cover and no grant
    that still runs reserves; needs a transaction. The execution itself is not changed: once the
    grant has run out unused, it is anybody's again. Raises `ValidationError` (capabilities, names,
    a ttl that is not 1 to 60000 ms) and `Unavailable` while there is no key to sign with.
    """
    terms = Terms(
        worker_id=worker_id,
        worker_instance_id=worker_instance_id,
        lane_id=lane_id,
        worker_capabilities=worker_capabilities,
        grant_ttl_ms=grant_ttl_ms,
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
            grant = await _granted(conn, key, row, terms) if row.free else None
            if grant is not None:
                return grant
        if len(found) < wanted:
            return None
    return None


async def _granted(conn: Connection, key: Key, row: _Found, terms: Terms) -> ClaimGrant | None:
    """The grant; None when another one was committed before this row was locked."""
    execution_id = ExecutionId(row.partition_key, row.execution_id)
    stored = await store_grant(conn, key, GrantKind.CLAIM, execution_id, terms, now_ms=row.now_ms)
    return None if stored is None else claim_grant(stored)
