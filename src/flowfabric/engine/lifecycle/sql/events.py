"""The events of executions: one INSERT for each of the two tables.

Each gives the body of a CTE. `source` has the columns of `fence.LOCKED_COLUMNS`, or at least those
that are named here. `wakes` are subqueries of `wake`, run once if an event was written.
"""

from __future__ import annotations

from typing import LiteralString


def record_lease_event(
    source: LiteralString,
    *,
    event_type: LiteralString,
    reason: LiteralString = "NULL",
    where: LiteralString = "true",
    at: LiteralString = "ff.now_ms()",
    wakes: LiteralString = "",
) -> LiteralString:
    """One lease event for each row of `source`, which happened `at` that instant: now."""
    returning: LiteralString = f"\n RETURNING {wakes}" if wakes else ""
    return f"""
    INSERT INTO ff.lease_event (
           execution_id, lease_id, route_id, lease_epoch, occurred_at_ms, attempt_index,
           partition_key, event_type, reason, worker_instance_id, tags)
    SELECT execution_id, lease_id, route_id, lease_epoch, {at}, attempt_index,
           partition_key, {event_type}, {reason}, worker_instance_id, nullif(tags, '{{}}')
      FROM {source} WHERE {where}{returning}
"""


def record_completion_event(source: LiteralString, *, wakes: LiteralString) -> LiteralString:
    """One completion event for each row of `source`, with its `outcome` and `ended_at_ms`."""
    return f"""
    INSERT INTO ff.completion_event (
           execution_id, route_id, created_at_ms, occurred_at_ms, partition_key, outcome, flow_id,
           tags)
    SELECT execution_id, route_id, created_at_ms, ended_at_ms, partition_key, outcome, flow_id,
           nullif(tags, '{{}}')
      FROM {source} ORDER BY execution_id
 RETURNING {wakes}
"""
