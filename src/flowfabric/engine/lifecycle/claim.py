"""runnable → active: the best claimable executions are leased to this worker."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, LiteralString
from uuid import UUID, uuid4

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.sql.lease import (
    LEASE_FOUND,
    LEASED_ROW,
    Claimed,
    LeasedRow,
    claimed,
)
from flowfabric.errors import invalid_input
from flowfabric.ids import check_lane, check_list, check_worker_name
from flowfabric.pages import check_limit
from flowfabric.policy import check_capabilities, milliseconds

MAX_BATCH: Final = 1000

CLAIM: Final[LiteralString] = (
    """
-- lifecycle.claim
WITH found AS (       -- the best that this worker can run and no other has a grant of, locked
    SELECT best.*, false AS reclaims, NULL::bigint AS timeout_ms
      FROM ff.claimable(%(lanes)s::text[], %(namespace)s, %(kinds)s::text[],
                        %(capabilities)s::text[], %(limit)s, %(worker_id)s) AS best
)"""
    + LEASE_FOUND
    + f"""
SELECT{LEASED_ROW}
  FROM leased JOIN ff.route route USING (route_id)
 ORDER BY leased.priority DESC, leased.created_at_ms, leased.execution_id
"""
)


class Claimant(msgspec.Struct, frozen=True, kw_only=True):
    """The worker that claims, and what it can run; checked once, when it is made."""

    worker_id: str
    worker_instance_id: str
    lanes: tuple[str, ...]
    namespace: str = "default"
    kinds: tuple[str, ...] | None = None
    capabilities: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_worker_name(self.worker_id, field="worker_id")
        check_worker_name(self.worker_instance_id, field="worker_instance_id")
        for field in ("lanes", "kinds"):
            given = getattr(self, field)
            if given is not None:
                msgspec.structs.force_setattr(self, field, check_list(given, field=field))
        if not self.lanes:
            raise invalid_input("lanes", list(self.lanes), "must name at least one lane")
        for lane in self.lanes:
            check_lane(lane)
        offered = tuple(check_capabilities(self.capabilities, side="worker"))
        msgspec.structs.force_setattr(self, "capabilities", offered)


async def claim(
    conn: Connection,
    claimant: Claimant,
    *,
    ttl: float | timedelta,
    limit: int = 1,
    lease_id: UUID | None = None,
) -> list[Claimed]:
    """Lease at most `limit` executions: highest priority first, then the oldest.

    The list is empty if nothing is claimable. Two claims never give the same execution. Executions
    that the claimant cannot run (lane, kind, capabilities, namespace) neither hide nor slow those
    that it can. Executions for which another worker has a grant, and executions past their
    deadline, are passed over.

    `lease_id` is made for this call unless given, and must be new. A caller that gets no answer
    finds what the call leased by `read_claimed`.
    """
    check_limit(limit, at_most=MAX_BATCH)
    if milliseconds(ttl) < 1:
        raise invalid_input("ttl", ttl, "must be positive")
    lease_id = lease_id or uuid4()
    rows = await fetch_all(
        conn,
        CLAIM,
        LeasedRow,
        lanes=list(claimant.lanes),
        kinds=None if claimant.kinds is None else list(claimant.kinds),
        capabilities=list(claimant.capabilities),
        namespace=claimant.namespace,
        worker_id=claimant.worker_id,
        worker_instance_id=claimant.worker_instance_id,
        lease_id=lease_id,
        ttl_ms=milliseconds(ttl),
        limit=limit,
    )
    return [claimed(row, lease_id) for row in rows]
