"""The joins of members, and those below them, are locked before the members run again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, Moved, fetch_all, fetch_one
from flowfabric.engine.joins.member_joins import group_columns
from flowfabric.engine.lifecycle.lock_executions import id_columns, lock_executions
from flowfabric.ids import ExecutionId

# A member is skipped only under the lock of its join, and a completion is dispatched only under the
# locks of the joins that it concerns: while these are held, neither happens.
LOCK_JOINS: Final[LiteralString] = """
-- joins.lock_joins: what the members wait for, and what waits for them
WITH wanted AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(group_id)s::uuid[])
        AS own (partition_key, group_id)
     UNION
    SELECT below.partition_key, below.group_id
      FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
           AS named (partition_key, execution_id)
     CROSS JOIN LATERAL (  -- driven by the members, whatever statistics say
           SELECT e.partition_key, e.group_id FROM ff.edge e
            WHERE (e.partition_key, e.upstream_eid) = (named.partition_key, named.execution_id)
           OFFSET 0) AS below
)
SELECT g.partition_key, g.waiter_eid
  FROM ff.edge_group g JOIN wanted USING (partition_key, group_id)
 WHERE g.waits_as = 'member'
 ORDER BY g.partition_key, g.group_id FOR NO KEY UPDATE OF g
"""

LOCK_EDGES: Final[LiteralString] = """
-- joins.lock_joins: the edges, in one order
WITH wanted AS (
    SELECT above.partition_key, above.flow_id, above.edge_id
      FROM unnest(%(partition_key)s::smallint[], %(group_id)s::uuid[])
           AS own (partition_key, group_id)
     CROSS JOIN LATERAL (
           SELECT g.group_state FROM ff.edge_group g
            WHERE (g.partition_key, g.group_id) = (own.partition_key, own.group_id)
           OFFSET 0) AS g
     CROSS JOIN LATERAL (
           SELECT e.partition_key, e.flow_id, e.edge_id FROM ff.edge e
            WHERE (e.partition_key, e.group_id) = (own.partition_key, own.group_id)
           OFFSET 0) AS above
     WHERE g.group_state <> 'satisfied'
     UNION
    SELECT below.partition_key, below.flow_id, below.edge_id
      FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
           AS named (partition_key, execution_id)
     CROSS JOIN LATERAL (
           SELECT e.partition_key, e.flow_id, e.edge_id FROM ff.edge e
            WHERE (e.partition_key, e.upstream_eid) = (named.partition_key, named.execution_id)
           OFFSET 0) AS below
), sorted AS MATERIALIZED (
    SELECT * FROM wanted ORDER BY partition_key, flow_id, edge_id
), locked AS (
    SELECT FROM sorted CROSS JOIN LATERAL (
           SELECT FROM ff.edge e
            WHERE (e.partition_key, e.flow_id, e.edge_id)
                = (sorted.partition_key, sorted.flow_id, sorted.edge_id)
              FOR NO KEY UPDATE) AS e
)
SELECT count(*) AS moved FROM locked
"""

# One that has ended stays so: a replay of it locks the join first, which is locked here.
UNENDED_UPSTREAMS: Final[LiteralString] = """
-- joins.lock_joins: the upstreams that may end
SELECT DISTINCT u.partition_key, u.execution_id
  FROM unnest(%(partition_key)s::smallint[], %(group_id)s::uuid[])
       AS own (partition_key, group_id)
 CROSS JOIN LATERAL (
       SELECT g.group_state FROM ff.edge_group g
        WHERE (g.partition_key, g.group_id) = (own.partition_key, own.group_id)
       OFFSET 0) AS g
 CROSS JOIN LATERAL (
       SELECT e.partition_key, e.upstream_eid FROM ff.edge e
        WHERE (e.partition_key, e.group_id) = (own.partition_key, own.group_id)
       OFFSET 0) AS e
 CROSS JOIN LATERAL (
       SELECT u.partition_key, u.execution_id, u.lifecycle_phase FROM ff.exec_core u
        WHERE (u.partition_key, u.execution_id) = (e.partition_key, e.upstream_eid)
       OFFSET 0) AS u
 WHERE g.group_state <> 'satisfied' AND u.lifecycle_phase <> 'terminal'
"""


class _Waiter(msgspec.Struct, frozen=True):
    partition_key: int
    waiter_eid: UUID


class _Upstream(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID


async def lock_joins(conn: Connection, members: Sequence[ExecutionId]) -> set[ExecutionId]:
    """The members are locked with their joins, the joins that wait for them, and their upstreams.

    Answers with the executions whose joins are locked. An upstream that is about to end waits until
    the transaction ends, and its completion then finds its edges as they are. Needs a transaction
    that holds the locks of the flows and of no execution.
    """
    groups = group_columns(members)
    both = groups | id_columns(members)
    waiters = await fetch_all(conn, LOCK_JOINS, _Waiter, **both)
    await fetch_one(conn, LOCK_EDGES, Moved, **both)
    unended = await fetch_all(conn, UNENDED_UPSTREAMS, _Upstream, **groups)
    upstreams = {ExecutionId(row.partition_key, row.execution_id) for row in unended}
    await lock_executions(conn, [*upstreams.union(members)])
    return {ExecutionId(row.partition_key, row.waiter_eid) for row in waiters}
