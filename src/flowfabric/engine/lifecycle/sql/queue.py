"""The queue of claimable executions: a row of `ff.ready` for each, inserted and deleted here.

The claim takes rows itself. A row is never updated: a statement that changes what a claim reads of
a queued execution deletes the row and inserts another one.
"""

from __future__ import annotations

from typing import LiteralString


def queue_row(row: LiteralString) -> LiteralString:
    """The condition that `ff.ready r` is the row of `row`, which has the columns of an execution.

    The first comparison is no plain equality: with one the planner may read the whole queue in the
    order of its index, once for all rows, and does so when statistics say that the queue is empty.
    """
    return f"""r.route_id = ANY (ARRAY[{row}.route_id])
       AND (r.priority, r.created_at_ms, r.execution_id, r.partition_key)
         = ({row}.priority, {row}.created_at_ms, {row}.execution_id, {row}.partition_key)"""


def queued(source: LiteralString) -> LiteralString:
    """The CTE that queues those rows of `source` that are `eligible_now`.

    `source` has the columns of the execution after the change that made it claimable.
    """
    return f""", queued AS (         -- those that are claimable now
    INSERT INTO ff.ready (
           route_id, created_at_ms, priority, partition_key, execution_id, deadline_at_ms,
           quota_key_id, queued_by, budget_ids)
    SELECT route_id, created_at_ms, priority, partition_key, execution_id, deadline_at_ms,
           quota_key_id, CASE WHEN quota_key_id IS NOT NULL THEN pg_current_xact_id() END,
           budget_ids
      FROM {source} WHERE eligibility_state = 'eligible_now'
)"""


def slot_freed(source: LiteralString) -> LiteralString:
    """The CTE that notes the limits of the rows of `source`, which have lost their leases.

    For leases that are not given up by their holder: a worker lets the next executions go itself.
    """
    return f""", {source}_freed AS (  -- the next one of the limit can be claimed
    INSERT INTO ff.quota_wakeup (partition_key, quota_key_id)
    SELECT partition_key, quota_key_id FROM {source} WHERE quota_key_id IS NOT NULL
)"""


def dequeued(source: LiteralString, *, where: LiteralString = "true") -> LiteralString:
    """The CTE that takes the rows of `source` off the queue; rows that are not queued are ignored.

    An earlier statement of the transaction has locked the executions by `lock_executions`, so that
    no claim takes them meanwhile. `source` has the columns of the execution before the change.
    Rows (`leaving`) for which `where` is false cannot be queued, and are not looked up.
    """
    return f""", dequeued AS (       -- no longer claimable
    DELETE FROM ff.ready r USING {source} AS leaving
     WHERE {queue_row("leaving")} AND {where}
 RETURNING r.partition_key, r.quota_key_id
), place_freed AS (    -- the next one of a limit that held others back can be claimed
    INSERT INTO ff.quota_wakeup (partition_key, quota_key_id)
    SELECT partition_key, quota_key_id FROM dequeued WHERE quota_key_id IS NOT NULL
)"""
