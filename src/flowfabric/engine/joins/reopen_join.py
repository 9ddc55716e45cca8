"""The join of a replayed parent counts children that run again as running again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_all, fetch_maybe
from flowfabric.engine.joins.apply_decisions import apply_decisions
from flowfabric.engine.joins.evaluate_join import evaluate_join
from flowfabric.engine.joins.queue_siblings import BY
from flowfabric.engine.journal.rewind_journal import rewind_journal
from flowfabric.engine.lifecycle.lock_executions import lock_and_read
from flowfabric.engine.lifecycle.operator_event import operator_events
from flowfabric.engine.lifecycle.restart import restart, restart_refusal
from flowfabric.ids import ExecutionId, GroupId
from flowfabric.states import FlowState, GroupState, OperatorEventType

# A cancel of the flow waits until this commits, and then finds the children.
LOCK_FLOW: Final[LiteralString] = """
-- joins.reopen_join: the flow
SELECT f.public_flow_state
  FROM ff.edge_group g JOIN ff.flow_core f USING (partition_key, flow_id)
 WHERE (g.partition_key, g.group_id) = (%(partition_key)s, %(group_id)s) FOR SHARE OF f
"""

LOCK: Final[LiteralString] = """
-- joins.reopen_join: the join
SELECT group_state FROM ff.edge_group
 WHERE (partition_key, group_id) = (%(partition_key)s, %(group_id)s) FOR NO KEY UPDATE
"""

# Before the executions, as a replay of a child locks them.
LOCK_EDGES: Final[LiteralString] = """
-- joins.reopen_join: its edges, in one order
SELECT e.upstream_eid AS execution_id FROM ff.edge e
 WHERE (e.partition_key, e.group_id) = (%(partition_key)s, %(group_id)s)
 ORDER BY e.partition_key, e.flow_id, e.edge_id FOR NO KEY UPDATE
"""

# An end of a child waits for this transaction; its completion then finds the edge open.
LOCK_EXECUTIONS: Final[LiteralString] = """
-- joins.reopen_join: the children and their parent, in one order
SELECT m.execution_id FROM ff.exec_core m
 WHERE m.partition_key = %(partition_key)s
   AND m.execution_id IN (
           SELECT e.upstream_eid FROM ff.edge e
            WHERE (e.partition_key, e.group_id) = (%(partition_key)s, %(group_id)s)
            UNION ALL
           SELECT g.waiter_eid FROM ff.edge_group g
            WHERE (g.partition_key, g.group_id) = (%(partition_key)s, %(group_id)s))
 ORDER BY m.execution_id FOR NO KEY UPDATE OF m
"""

CANCELLED: Final[LiteralString] = """
-- joins.reopen_join: children that were cancelled only because the parent had ended
SELECT c.execution_id
  FROM ff.edge e
  JOIN ff.exec_core c ON (c.partition_key, c.execution_id) = (e.partition_key, e.upstream_eid)
 WHERE (e.partition_key, e.group_id) = (%(partition_key)s, %(group_id)s)
   AND c.terminal_outcome = 'cancelled' AND c.cancellation_reason = 'parent_ended'
   AND c.cancelled_by = %(by)s
 ORDER BY c.execution_id
"""

# The earlier completion of a child that runs again does not count any more.
REOPEN: Final[LiteralString] = """
-- joins.reopen_join: the edges
WITH changed AS (
    SELECT e.flow_id, e.edge_id, c.terminal_outcome = 'success' AS succeeded,
           coalesce((SELECT max(t.event_id) FROM ff.completion_event t
                      WHERE (t.route_id, t.created_at_ms, t.execution_id, t.partition_key)
                          = (c.route_id, c.created_at_ms, c.execution_id, c.partition_key)), 0)
               AS last_event_id
      FROM ff.edge e
      JOIN ff.exec_core c ON (c.partition_key, c.execution_id) = (e.partition_key, e.upstream_eid)
     WHERE (e.partition_key, e.group_id) = (%(partition_key)s, %(group_id)s)
       AND (c.lifecycle_phase <> 'terminal' AND e.resolution <> 'satisfied'
            OR c.terminal_outcome = 'success' AND e.resolution = 'impossible')
)
UPDATE ff.edge e
   SET resolution = CASE WHEN changed.succeeded THEN 'satisfied' ELSE 'unresolved' END,
       resolved_outcome = CASE WHEN changed.succeeded THEN 'success' END,
       resolved_at_ms = CASE WHEN changed.succeeded THEN ff.now_ms() END,
       resolved_event_id = CASE WHEN changed.succeeded THEN changed.last_event_id END,
       min_event_id = CASE WHEN changed.succeeded THEN e.min_event_id
                           ELSE changed.last_event_id END
  FROM changed
 WHERE (e.partition_key, e.flow_id, e.edge_id)
     = (%(partition_key)s, changed.flow_id, changed.edge_id)
"""

RECOUNT: Final[LiteralString] = """
-- joins.reopen_join: the counters; nothing is cancelled for this join
WITH counted AS (
    SELECT (count(*) FILTER (WHERE resolution = 'satisfied'))::integer AS succeeded,
           (count(*) FILTER (WHERE resolved_outcome = 'skipped'))::integer AS skipped,
           (count(*) FILTER (WHERE resolution = 'impossible'
                               AND resolved_outcome <> 'skipped'))::integer AS failed,
           (count(*) FILTER (WHERE resolution = 'unresolved'))::integer AS running
      FROM ff.edge WHERE (partition_key, group_id) = (%(partition_key)s, %(group_id)s)
), unlisted AS (
    DELETE FROM ff.pending_cancel_groups
     WHERE (partition_key, group_id) = (%(partition_key)s, %(group_id)s)
)
UPDATE ff.edge_group g
   SET success_count = counted.succeeded, skip_count = counted.skipped,
       fail_count = counted.failed, running_count = counted.running,
       group_state = 'pending', fired_at_ms = NULL, cancel_siblings_pending_flag = false,
       cancel_siblings_pending_members = NULL, cancel_siblings_pending_losers = NULL
  FROM counted
 WHERE (g.partition_key, g.group_id) = (%(partition_key)s, %(group_id)s)
"""


class _Flow(msgspec.Struct, frozen=True):
    public_flow_state: str


class _Group(msgspec.Struct, frozen=True):
    group_state: str


class _Child(msgspec.Struct, frozen=True):
    execution_id: UUID


async def reopen_join(conn: Connection, group: GroupId) -> None:
    """A join that is not satisfied is evaluated again; needs a transaction.

    Children that were cancelled with their parent run again; a child that an operator replayed
    counts as it stands now; any other that failed stays failed. In a cancelled flow nothing runs
    again.
    """
    where = {"partition_key": group.partition_key, "group_id": group.uuid}
    flow = await fetch_maybe(conn, LOCK_FLOW, _Flow, **where)
    if flow is not None and flow.public_flow_state != FlowState.OPEN:
        return
    locked = await fetch_maybe(conn, LOCK, _Group, **where)
    if locked is None or locked.group_state == GroupState.SATISFIED:
        return
    await fetch_all(conn, LOCK_EDGES, _Child, **where)
    await fetch_all(conn, LOCK_EXECUTIONS, _Child, **where)
    cancelled = await fetch_all(conn, CANCELLED, _Child, by=BY, **where)
    await _restart(
        conn, [ExecutionId(group.partition_key, each.execution_id) for each in cancelled]
    )
    await execute(conn, REOPEN, **where)
    await execute(conn, RECOUNT, **where)
    await apply_decisions(conn, await evaluate_join(conn, group))


async def _restart(conn: Connection, children: Sequence[ExecutionId]) -> None:
    if not children:
        return
    seen = await lock_and_read(conn, children)
    for child in children:
        refusal = restart_refusal(seen[child])
        if refusal is not None:
            raise refusal
    rewound = await rewind_journal(conn, children)
    restarted = await restart(conn, children)
    await operator_events(
        conn,
        OperatorEventType.REPLAYED,
        {
            child: each.facts() | (rewound[child].facts() if child in rewound else {})
            for child, each in restarted.items()
        },
        actor=BY,
        reason="its parent runs again",
    )
