"""What is true of every flow at every moment (flows.md section 2), asked in SQL."""

from __future__ import annotations

from flowfabric.db.rows import Connection
from tests.engine.flows.model import decision

SHARED = """
WITH whole AS MATERIALIZED (      -- the flows of which retention has removed nothing
    SELECT f.partition_key, f.flow_id FROM ff.flow_core f
     WHERE f.node_count = (SELECT count(*) FROM ff.execution e
                            WHERE (e.partition_key, e.flow_id) = (f.partition_key, f.flow_id))
), last_told AS MATERIALIZED (    -- of each execution
    SELECT DISTINCT ON (execution_id) * FROM ff.completion_event WHERE outcome <> 'resumable'
     ORDER BY execution_id, event_id DESC
)
"""

BROKEN = {
    "a flow counts its members, its edges and its revision": """
        SELECT f.* FROM ff.flow_core f
         WHERE f.graph_revision <> f.node_count + f.edge_count
            OR f.node_count < (SELECT count(*) FROM ff.execution e
                                WHERE (e.partition_key, e.flow_id) = (f.partition_key, f.flow_id))
            OR (f.edge_count <> (SELECT count(*) FROM ff.edge e
                                  WHERE (e.partition_key, e.flow_id) = (f.partition_key, f.flow_id))
                AND (f.partition_key, f.flow_id) IN (SELECT * FROM whole))""",
    "a member has a flow": """
        SELECT e.execution_id, e.flow_id FROM ff.execution e
         WHERE e.flow_id IS NOT NULL
           AND NOT EXISTS (SELECT FROM ff.flow_core f
                            WHERE (f.partition_key, f.flow_id) = (e.partition_key, e.flow_id))""",
    "a group's counters are a recount of its edges": """
        SELECT g.*, c.* FROM ff.edge_group g JOIN whole USING (partition_key, flow_id)
          LEFT JOIN LATERAL (
               SELECT count(*) FILTER (WHERE resolution = 'satisfied') AS s,
                      count(*) FILTER (WHERE resolution = 'impossible'
                                         AND resolved_outcome <> 'skipped') AS f,
                      count(*) FILTER (WHERE resolution = 'impossible'
                                         AND resolved_outcome = 'skipped') AS x,
                      count(*) FILTER (WHERE resolution = 'unresolved') AS u
                 FROM ff.edge e
                WHERE (e.partition_key, e.group_id) = (g.partition_key, g.group_id)
                  AND e.edge_state = 'applied') AS c ON true
         WHERE (g.success_count, g.fail_count, g.skip_count, g.running_count)
            <> (c.s, c.f, c.x, c.u)""",
    "every edge belongs to a group": """
        SELECT e.* FROM ff.edge e JOIN whole USING (partition_key, flow_id)
          LEFT JOIN ff.edge_group g USING (partition_key, group_id)
         WHERE g.group_state IS NULL""",
    "an edge was resolved by an end of its upstream that it had not used before": """
        SELECT e.*, c.outcome FROM ff.edge e JOIN whole USING (partition_key, flow_id)
          LEFT JOIN ff.completion_event c ON c.event_id = e.resolved_event_id
         WHERE e.resolution <> 'unresolved'
           AND (c.execution_id IS DISTINCT FROM e.upstream_eid
                OR c.outcome IS DISTINCT FROM e.resolved_outcome
                OR c.event_id <= e.min_event_id)""",
    "success satisfies an edge, and nothing else does": """
        SELECT * FROM ff.edge
         WHERE (resolution = 'satisfied') <> coalesce(resolved_outcome = 'success', false)""",
    "an end that was dispatched was heard by every edge": """
        SELECT e.*, c.event_id FROM ff.edge e
          JOIN ff.execution u
            ON (u.partition_key, u.execution_id) = (e.partition_key, e.upstream_eid)
          JOIN last_told c ON c.execution_id = u.execution_id
         WHERE e.edge_state = 'applied' AND e.resolution = 'unresolved'
           AND u.lifecycle_phase = 'terminal' AND c.event_id > e.min_event_id
           AND (c.dispatched_at_ms IS NOT NULL OR c.flow_id IS NULL)""",
    "nobody waits for a group that is decided": """
        SELECT d.execution_id, g.* FROM ff.execution d
          JOIN ff.edge_group g
            ON (g.partition_key, g.waiter_eid) = (d.partition_key, d.execution_id)
         WHERE g.waits_as = 'member' AND g.group_state <> 'pending'
           AND d.eligibility_state = 'blocked_by_dependencies'
           AND NOT EXISTS (SELECT FROM ff.edge_group w  -- it has let go for children of its own
                            WHERE (w.partition_key, w.waiter_eid)
                                = (d.partition_key, d.execution_id)
                              AND w.waits_as = 'children'
                              AND w.group_state = 'pending')""",
    "nobody begins before its group is decided": """
        SELECT d.execution_id, d.public_state, g.* FROM ff.execution d
          JOIN ff.edge_group g
            ON (g.partition_key, g.waiter_eid) = (d.partition_key, d.execution_id)
         WHERE g.waits_as = 'member'
           AND d.eligibility_state IN ('eligible_now', 'not_eligible_until_time')
           AND d.total_attempt_count = 0 AND g.group_state = 'pending'
           AND d.replay_count = 0  -- a replay of one that was cancelled has it run at once
           AND g.success_count + g.fail_count + g.skip_count + g.running_count > 0""",
    "every end is told once": """
        SELECT e.execution_id, e.public_state, e.replay_count FROM ff.execution e
         WHERE (SELECT count(*) FROM ff.completion_event c
                 WHERE c.execution_id = e.execution_id AND c.outcome <> 'resumable')
            <> e.replay_count + (e.lifecycle_phase = 'terminal')::integer""",
    "the last end told is the one that stands": """
        SELECT e.execution_id, e.terminal_outcome, c.outcome FROM ff.execution e
          JOIN last_told c USING (execution_id)
         WHERE e.lifecycle_phase = 'terminal' AND e.terminal_outcome <> c.outcome""",
    "a group is listed exactly while its flag is up and somebody is named": """
        SELECT g.*, p.enqueued_at_ms FROM ff.edge_group g
          FULL JOIN ff.pending_cancel_groups p USING (partition_key, group_id)
         WHERE coalesce(g.cancel_siblings_pending_flag, false) <> (p.enqueued_at_ms IS NOT NULL)
            OR coalesce(g.cancel_siblings_pending_flag, false)
               <> (coalesce(cardinality(g.cancel_siblings_pending_members), 0)
                   + coalesce(cardinality(g.cancel_siblings_pending_losers), 0) > 0)""",
    "a backlog is there exactly while somebody is owed an end": """
        SELECT * FROM ff.cancel_backlog b
          FULL JOIN (SELECT DISTINCT partition_key, flow_id FROM ff.cancel_backlog_member) AS m
              USING (partition_key, flow_id)
         WHERE b.reason IS NULL OR m IS NULL""",
    "only a cancelled flow owes ends or parks members": """
        SELECT e.execution_id, e.blocking_reason, f.public_flow_state FROM ff.execution e
          JOIN ff.flow_core f USING (partition_key, flow_id)
         WHERE f.public_flow_state <> 'cancelled'
           AND (e.blocking_reason = 'paused_by_flow_cancel'
                OR EXISTS (SELECT FROM ff.cancel_backlog_member m
                            WHERE m.execution_id = e.execution_id))""",
}

WHOLE_TABLES = """
SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on
"""
"""These read everything; the settings of our connections are for statements that read little."""

GROUPS = """
SELECT g.*, d.lifecycle_phase, d.started_at_ms
  FROM ff.edge_group g JOIN whole USING (partition_key, flow_id)
  JOIN ff.execution d ON (d.partition_key, d.execution_id) = (g.partition_key, g.waiter_eid)
 WHERE g.waits_as = 'member'
"""


async def broken_invariants(db: Connection) -> dict[str, list[str]]:
    """What does not hold, and where."""
    found: dict[str, list[str]] = {}
    async with db.transaction(isolation="repeatable_read", readonly=True):
        await db.execute(WHOLE_TABLES)
        for claim, sql in BROKEN.items():
            rows = await db.fetch(SHARED + sql)
            if rows:
                found[claim] = [str(dict(row)) for row in rows]
        for row in await db.fetch(SHARED + GROUPS):
            if not _follows(dict(row)):
                found.setdefault("a group stands as its counters say", []).append(str(dict(row)))
    return found


def _follows(group: dict[str, object]) -> bool:
    counts = [int(str(group[f"{which}_count"])) for which in ("success", "fail", "skip", "running")]
    expected = decision(
        str(group["policy_kind"]), group["k"], *counts, expected_n=group["expected_n"]
    )
    if group["group_state"] == expected or not sum(counts):
        return True  # without an edge nothing was asked yet
    # An all-of that has let its downstream begin counts later edges without effect.
    return group["group_state"] == "satisfied" and (
        group["policy_kind"] == "all_of" and group["started_at_ms"] is not None
    )
