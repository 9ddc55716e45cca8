"""How many executions a worker could claim, locked by another transaction or not."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.pages import check_limit

MOST: Final = 10_000

# The conditions are those of ff.claimable, without its locks.
COUNT_CLAIMABLE: Final[LiteralString] = """
-- executions.count_claimable
SELECT count(*) AS claimable
  FROM (SELECT FROM ff.route r
         CROSS JOIN LATERAL (
               SELECT FROM ff.ready e
                WHERE e.route_id = r.route_id
                  AND (e.deadline_at_ms IS NULL OR e.deadline_at_ms > ff.now_ms())
                  AND NOT ff.reserved(e.partition_key, e.execution_id, %(worker_id)s)
                LIMIT %(at_most)s) AS claimable
         WHERE r.lane_id = ANY (%(lanes)s::text[]) AND r.namespace = %(namespace)s
           AND (%(kinds)s::text[] IS NULL OR r.execution_kind = ANY (%(kinds)s::text[]))
           AND r.required_capabilities <@ %(capabilities)s::text[]
           AND r.lane_id <> ALL (ARRAY(
               SELECT l.lane_id FROM ff.lane_registry l
                WHERE l.lane_id = ANY (%(lanes)s::text[])
                  AND l.lane_state IN ('paused', 'disabled')))
         LIMIT %(at_most)s) AS found
"""


class _Counted(msgspec.Struct, frozen=True):
    claimable: int


async def count_claimable(conn: Connection, claimant: Claimant, *, at_most: int = MOST) -> int:
    """How many executions the claimant could claim once no other transaction has them locked.

    Counts no further than `at_most`. A claim passes over executions that are locked, and nobody is
    notified when a lock is released: an empty claim alone does not say that nothing is queued.
    """
    check_limit(at_most, at_most=MOST, field="at_most")
    row = await fetch_one(
        conn,
        COUNT_CLAIMABLE,
        _Counted,
        **claimant.route_columns(),
        worker_id=claimant.worker_id,
        at_most=at_most,
    )
    return row.claimable
