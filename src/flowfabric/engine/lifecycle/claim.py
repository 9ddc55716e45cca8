"""runnable → active: the best claimable executions are leased to this worker."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, LiteralString
from uuid import UUID, uuid4

import msgspec

from flowfabric.counters import BUDGET_HITS, QUOTA_HITS
from flowfabric.db.driver_uuid import DriverUUID
from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.log_unknown_budgets import log_unknown_budgets
from flowfabric.engine.lifecycle.sql.lease import (
    LEASE_TAKEN,
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
_LOOKS: Final = 4
"""So often a claim that leased nothing looks, if limits made room for others meanwhile."""

# A claim that is a transaction of its own does not wait until its WAL is flushed. If the server
# crashes before that, the executions are still eligible, and the lease, whose id is random, is
# refused everywhere. The setting ends with the transaction, so it holds behind a pooler, and a
# claim inside a larger transaction leaves the setting alone: that transaction may do more.
CLAIM: Final[LiteralString] = (
    """
-- lifecycle.claim
WITH looked AS MATERIALIZED (   -- is something queued that is attached to budgets?
    SELECT ff.budgets_queued() AS found
), best AS (          -- the best that this worker can run and no other has a grant of, locked
    SELECT * FROM (
           SELECT place, held_back, NULL::text[] AS out_of_budget
             FROM ff.claimable(%(lanes)s::text[], %(namespace)s, %(kinds)s::text[],
                               %(capabilities)s::text[], %(limit)s, %(worker_id)s,
                               p_seen => pg_current_snapshot())
            WHERE NOT (SELECT found FROM looked)
            UNION ALL
           SELECT place, held_back, out_of_budget
             FROM ff.claimable_in_budget(%(lanes)s::text[], %(namespace)s, %(kinds)s::text[],
                                         %(capabilities)s::text[], %(limit)s, %(worker_id)s, true,
                                         pg_current_snapshot())
            WHERE (SELECT found FROM looked)) AS best
     WHERE (SELECT CASE WHEN %(is_alone)s::boolean     -- once, and not if nothing is found
                        THEN set_config('synchronous_commit', 'off', true) ELSE 'on' END) <> ''
), taken AS (         -- a row that was queued after this statement began is left for the next claim
    DELETE FROM ff.ready r USING best WHERE r.ctid = best.place
 RETURNING r.partition_key, r.execution_id, false AS reclaims, NULL::bigint AS timeout_ms,
           ff.now_ms() AS now_ms, r.budget_ids
)"""
    + LEASE_TAKEN
    + f"""
SELECT{LEASED_ROW},
       (SELECT held_back FROM best WHERE place IS NULL) AS held_back,
       (SELECT out_of_budget FROM best WHERE place IS NULL) AS out_of_budget,
       (SELECT ff.unknown_budgets(ARRAY(SELECT unnest(budget_ids) FROM taken))
         WHERE (SELECT found FROM looked)) AS unknown_budgets
  FROM (SELECT) AS answer LEFT JOIN (leased JOIN ff.route route USING (route_id)) ON true
 WHERE leased.execution_id IS NOT NULL OR EXISTS (SELECT FROM best WHERE place IS NULL)
 ORDER BY leased.priority DESC, leased.created_at_ms, leased.execution_id
"""
)


class _Row(LeasedRow, frozen=True, gc=False):
    held_back: list[int] | None
    """How many limits held back (by rate, by cap), and whether another claim finds more.

    Where it is not null and nothing was leased, the other columns but the next are null.
    """
    out_of_budget: list[str] | None
    """The dimensions for which executions were held back, each once for each execution."""
    unknown_budgets: list[UUID] | None
    """The budgets of what was leased that nobody has created."""


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

    def route_columns(self) -> dict[str, Any]:
        """What the worker can run, as the arguments of a statement."""
        return {
            "lanes": list(self.lanes),
            "namespace": self.namespace,
            "kinds": None if self.kinds is None else list(self.kinds),
            "capabilities": list(self.capabilities),
        }


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
    deadline, are passed over. Of the key of a limit no more are leased than the limit allows; what
    is over it is held back until there is room, and so is what is attached to a spent budget. A
    budget that nobody has created limits nothing, which is logged.

    Outside of a transaction the claim does not wait for the disk: if the database server crashes
    within the next 600 ms (three times `wal_writer_delay`), the claim may never have happened, and
    the executions are claimable.

    `lease_id` is made for this call unless given, and must be new. A caller that gets no answer
    finds what the call leased by `read_claimed`.
    """
    check_limit(limit, at_most=MAX_BATCH)
    if milliseconds(ttl) < 1:
        raise invalid_input("ttl", ttl, "must be positive")
    lease_id = DriverUUID((lease_id or uuid4()).bytes)  # whose bytes are read for each lease
    for _ in range(_LOOKS):
        rows = await fetch_all(
            conn,
            CLAIM,
            _Row,
            **claimant.route_columns(),
            worker_id=claimant.worker_id,
            worker_instance_id=claimant.worker_instance_id,
            lease_id=lease_id,
            ttl_ms=milliseconds(ttl),
            limit=limit,
            is_alone=not conn.is_in_transaction(),
        )
        if not rows or rows[0].held_back is None:
            break
        by_rate, by_cap, look_again = rows[0].held_back
        QUOTA_HITS.add("rate", count=by_rate)
        QUOTA_HITS.add("concurrency", count=by_cap)
        for dimension in rows[0].out_of_budget or ():
            BUDGET_HITS.add(dimension)
        if rows[0].partition_key is None:  # pyright: ignore[reportUnnecessaryComparison]
            rows = []
        if rows or not look_again:
            break
    else:
        rows = []
    answer = [claimed(row, lease_id) for row in rows]
    if answer and (unknown := rows[0].unknown_budgets):
        await log_unknown_budgets(conn, [each.lease.execution_id for each in answer], unknown)
    return answer
