"""Executions that were cancelled because a race was decided give back what they have spent.

So do their children, and the children of those, which were cancelled with them.
"""

from __future__ import annotations

import random
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, Moved, execute, fetch_all, fetch_one
from flowfabric.engine.budgets.release_budget import release_spend
from flowfabric.ids import ExecutionId
from flowfabric.states import SiblingCancelReason

LOOKED_AT: Final = 1000
_DEEPEST: Final = 32
"""So many parents are looked at, from one to the next."""
_LOST: Final = (
    SiblingCancelReason.SIBLING_QUORUM_SATISFIED,
    SiblingCancelReason.SIBLING_QUORUM_IMPOSSIBLE,
)

# The cost does not depend on how many executions run: a call looks at some, from a random start.
FIND_ENDED: Final[LiteralString] = """
-- budgets.release_lost_races
WITH looked_at AS (   -- some rows of the ledger, from `start` on and round the end
    (SELECT budget_id, execution_partition, execution_id FROM ff.budget_usage_by_exec
      WHERE unsettled AND uuid_hash(execution_id) >= %(start)s::integer
      ORDER BY uuid_hash(execution_id) LIMIT %(looked_at)s)
     UNION ALL
    (SELECT budget_id, execution_partition, execution_id FROM ff.budget_usage_by_exec
      WHERE unsettled AND uuid_hash(execution_id) < %(start)s::integer
      ORDER BY uuid_hash(execution_id) LIMIT %(looked_at)s)
     LIMIT %(looked_at)s
)
SELECT DISTINCT l.budget_id, l.execution_partition, l.execution_id, cancelled.lost
  FROM looked_at l
 CROSS JOIN LATERAL (
       SELECT c.terminal_outcome = 'cancelled' AS cancelled,
              coalesce(c.cancellation_reason, '') AS cancellation_reason
         FROM ff.exec_core c
        WHERE (c.partition_key, c.execution_id) = (l.execution_partition, l.execution_id)
          AND c.lifecycle_phase = 'terminal' OFFSET 0) AS e
 CROSS JOIN LATERAL (  -- the execution, and from parent to parent what it was cancelled with
       WITH RECURSIVE chain (execution_id, cancelled, cancellation_reason, depth) AS (
           SELECT l.execution_id, e.cancelled, e.cancellation_reason, 0
            UNION ALL
           SELECT parent.*, chain.depth + 1
             FROM chain CROSS JOIN LATERAL (
                  SELECT p.execution_id, p.terminal_outcome = 'cancelled',
                         coalesce(p.cancellation_reason, '')
                    FROM ff.edge d
                    JOIN ff.edge_group g
                      ON (g.partition_key, g.group_id) = (d.partition_key, d.group_id)
                    JOIN ff.exec_core p
                      ON (p.partition_key, p.execution_id) = (g.partition_key, g.waiter_eid)
                   WHERE (d.partition_key, d.upstream_eid)
                       = (l.execution_partition, chain.execution_id)
                     AND g.waits_as = 'children' LIMIT 1) AS parent
            WHERE chain.cancelled AND chain.cancellation_reason = %(with_parent)s
              AND chain.depth < %(deepest)s)
       SELECT coalesce(bool_or(c.cancelled AND c.cancellation_reason = ANY (%(lost)s::text[])),
                       false) AS lost
         FROM chain c) AS cancelled
 LIMIT %(limit)s
"""

LOCK_BUDGETS: Final[LiteralString] = """
-- budgets.release_lost_races: the budgets, locked before their ledgers
SELECT budget_id FROM ff.try_lock_budgets(%(budget_id)s::uuid[])
"""

SETTLE_LEDGERS: Final[LiteralString] = """
-- budgets.release_lost_races: what ended otherwise keeps what it has spent
UPDATE ff.budget_usage_by_exec s SET unsettled = false
  FROM unnest(%(budget_id)s::uuid[], %(execution_partition)s::smallint[],
              %(execution_id)s::uuid[]) AS ended (budget_id, execution_partition, execution_id)
 WHERE (s.partition_key, s.budget_id, s.execution_id, s.execution_partition)
     = (ff.budget_partition(ended.budget_id), ended.budget_id, ended.execution_id,
        ended.execution_partition)
"""


UNSETTLED_SPENDS: Final[LiteralString] = """
-- budgets.unsettled_spends
SELECT count(*) AS moved
  FROM (SELECT FROM ff.budget_usage_by_exec WHERE unsettled
         ORDER BY uuid_hash(execution_id) LIMIT 1) AS one
"""


class _Locked(msgspec.Struct, frozen=True):
    budget_id: UUID


class _Ended(msgspec.Struct, frozen=True):
    budget_id: UUID
    execution_partition: int
    execution_id: UUID
    lost: bool


async def unsettled_spends(conn: Connection) -> bool:
    """Is there a ledger whose execution has not been seen to have ended?"""
    return (await fetch_one(conn, UNSETTLED_SPENDS, Moved)).moved > 0


async def release_lost_races(conn: Connection, limit: int) -> int:
    """Settle at most `limit` ledgers of executions that have ended; how many.

    Those that lost a race are released, with what their handlers recorded after that; the others
    are not looked at again. Those of a budget that somebody keeps locked are left for a later call.
    Needs a transaction.
    """
    ended = await fetch_all(
        conn,
        FIND_ENDED,
        _Ended,
        start=random.randint(-(2**31), 2**31 - 1),
        looked_at=LOOKED_AT,
        lost=[each.value for each in _LOST],
        with_parent=SiblingCancelReason.PARENT_ENDED.value,
        deepest=_DEEPEST,
        limit=limit,
    )
    if not ended:
        return 0
    budgets = [each.budget_id for each in ended]
    locked = await fetch_all(conn, LOCK_BUDGETS, _Locked, budget_id=budgets)
    free = {each.budget_id for each in locked}
    ended = [each for each in ended if each.budget_id in free]
    lost = [each for each in ended if each.lost]
    await release_spend(
        conn,
        [(e.budget_id, ExecutionId(e.execution_partition, e.execution_id)) for e in lost],
    )
    kept = [each for each in ended if not each.lost]
    await execute(
        conn,
        SETTLE_LEDGERS,
        budget_id=[each.budget_id for each in kept],
        execution_partition=[each.execution_partition for each in kept],
        execution_id=[each.execution_id for each in kept],
    )
    return len(ended)
