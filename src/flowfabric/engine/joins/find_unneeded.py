"""Members that served only the losers of a decided join are listed for cancellation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.joins.queue_siblings import IS_LOSER

AT_ONCE: Final = 500
"""Members of one join that one call starts from, and about how many it finds at most."""

# From level to level, upwards: a member is found once every member that waits for it is lost. So
# what is found comes in an order in which no member is cancelled before those that wait for it,
# which would be skipped otherwise. The climb stops with the level that passes the limit, and the
# members of that level are looked at by the next call. `OFFSET 0`: driven by the losers, whatever
# statistics say.
FIND_UNNEEDED: Final[LiteralString] = (
    """
-- joins.find_unneeded
WITH RECURSIVE climbed AS (
    SELECT g.partition_key, g.group_id, 0 AS depth, ended.members AS level, ended.members AS seen
      FROM unnest(%(partition_key)s::smallint[], %(group_id)s::uuid[])
           AS named (partition_key, group_id)
      JOIN ff.edge_group g USING (partition_key, group_id)
     CROSS JOIN LATERAL (  -- one that was replayed meanwhile is no loser
           SELECT coalesce(array_agg(l.execution_id), '{}') AS members
             FROM ff.exec_core l
            WHERE l.partition_key = g.partition_key
              AND l.execution_id = ANY (g.cancel_siblings_pending_losers[:%(at_once)s])
              AND l.lifecycle_phase = 'terminal') AS ended
     UNION ALL
    SELECT c.partition_key, c.group_id, c.depth + 1, above.members, c.seen || above.members
      FROM climbed c
     CROSS JOIN LATERAL (
           SELECT array_agg(u.execution_id ORDER BY u.execution_id) AS members
             FROM (SELECT DISTINCT e.upstream_eid
                     FROM unnest(c.level) AS loser (execution_id)
                    CROSS JOIN LATERAL (
                          SELECT group_id FROM ff.edge_group
                           WHERE (partition_key, waiter_eid) = (c.partition_key, loser.execution_id)
                             AND waits_as = 'member' OFFSET 0) AS own
                    CROSS JOIN LATERAL (
                          SELECT upstream_eid FROM ff.edge
                           WHERE (partition_key, group_id) = (c.partition_key, own.group_id)
                             AND edge_state = 'applied' OFFSET 0) AS e
                    WHERE e.upstream_eid <> ALL (c.seen)) AS served
            CROSS JOIN LATERAL (
                  SELECT * FROM ff.exec_core
                   WHERE (partition_key, execution_id) = (c.partition_key, served.upstream_eid)
                  OFFSET 0) AS u
            WHERE CASE WHEN u.lifecycle_phase = 'terminal' THEN """
    + IS_LOSER
    + """
                  ELSE NOT EXISTS (   -- another that needs it, or that lets it run on
                      SELECT FROM (SELECT group_id FROM ff.edge
                                    WHERE (partition_key, upstream_eid)
                                        = (c.partition_key, u.execution_id) OFFSET 0) AS o
                       CROSS JOIN LATERAL (
                             SELECT * FROM ff.edge_group
                              WHERE (partition_key, group_id) = (c.partition_key, o.group_id)
                             OFFSET 0) AS g
                       CROSS JOIN LATERAL (
                             SELECT * FROM ff.exec_core
                              WHERE (partition_key, execution_id) = (c.partition_key, g.waiter_eid)
                             OFFSET 0) AS w
                       WHERE CASE WHEN w.lifecycle_phase <> 'terminal'
                                  THEN w.execution_id <> ALL (c.seen)
                                  ELSE g.on_satisfied = 'let_run' AND g.group_state <> 'pending'
                                       AND w.terminal_outcome <> 'cancelled' END) END
           ) AS above
     WHERE above.members IS NOT NULL AND cardinality(c.seen) < 2 * %(at_once)s
), topmost AS (
    SELECT DISTINCT ON (partition_key, group_id) partition_key, group_id, level, seen
      FROM climbed ORDER BY partition_key, group_id, depth DESC
), found AS (         -- what was found, and what of the last level had ended before
    SELECT t.partition_key, t.group_id, split.members, split.ended
      FROM (SELECT partition_key, group_id, seen,
                   CASE WHEN cardinality(seen) < 2 * %(at_once)s THEN '{}' ELSE level END AS last
              FROM topmost) AS t
     CROSS JOIN LATERAL (
           SELECT array_agg(s.execution_id ORDER BY s.ordinal) FILTER (WHERE s.runs) AS members,
                  array_agg(s.execution_id) FILTER (WHERE s.is_last AND NOT s.runs) AS ended
             FROM (SELECT each.execution_id, each.ordinal, e.lifecycle_phase <> 'terminal' AS runs,
                          each.ordinal > cardinality(t.seen) - cardinality(t.last) AS is_last
                     FROM unnest(t.seen) WITH ORDINALITY AS each (execution_id, ordinal)
                    CROSS JOIN LATERAL (
                          SELECT lifecycle_phase FROM ff.exec_core
                           WHERE (partition_key, execution_id)
                               = (t.partition_key, each.execution_id) OFFSET 0) AS e
                   OFFSET 0) AS s) AS split
), named AS (         -- also joins of which no loser is left
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(group_id)s::uuid[])
        AS named (partition_key, group_id)
)
UPDATE ff.edge_group g
   SET cancel_siblings_pending_members = nullif(
           coalesce(g.cancel_siblings_pending_members, '{}') || ARRAY(
               SELECT member FROM unnest(found.members) AS member
                WHERE member <> ALL (coalesce(g.cancel_siblings_pending_members, '{}'))), '{}'),
       cancel_siblings_pending_losers = nullif(
           g.cancel_siblings_pending_losers[%(at_once)s + 1:] || coalesce(found.ended, '{}'), '{}')
  FROM named LEFT JOIN found USING (partition_key, group_id)
 WHERE (g.partition_key, g.group_id) = (named.partition_key, named.group_id)
RETURNING g.group_id, coalesce(g.cancel_siblings_pending_members, '{}') AS members
"""
)


class _Listed(msgspec.Struct, frozen=True):
    group_id: UUID
    members: list[UUID]


async def find_unneeded(
    conn: Connection, groups: Sequence[tuple[int, UUID]]
) -> dict[UUID, list[UUID]]:
    """List, for these decided joins, the members that served only their losers; every list.

    A member is not needed if every member that waits for it has ended, or is listed here itself. A
    member that a join with `let_run` leaves running is left alone. The caller has locked the joins
    in a transaction that began after the losers ended.
    """
    if not groups:
        return {}
    rows = await fetch_all(
        conn,
        FIND_UNNEEDED,
        _Listed,
        partition_key=[partition_key for partition_key, _ in groups],
        group_id=[group_id for _, group_id in groups],
        at_once=AT_ONCE,
    )
    return {row.group_id: row.members for row in rows}
