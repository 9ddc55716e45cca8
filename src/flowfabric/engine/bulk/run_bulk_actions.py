"""Sweep: the next batch of a change of many executions; its results are stored with it."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_maybe, fetch_one
from flowfabric.engine.bulk.action import BulkArguments, do_action
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.policy import milliseconds
from flowfabric.states import BulkActionKind

KEPT: Final = timedelta(days=30)

BULK_DUE: Final[LiteralString] = """
-- bulk.bulk_due
SELECT EXISTS (SELECT FROM ff.bulk_action WHERE state = 'running') AS due
"""

NEXT_BATCH: Final[LiteralString] = """
-- bulk.run_bulk_actions: the next batch
WITH next AS (        -- of the action that began first, unless another process is at it
    SELECT bulk_id, action, arguments::text AS arguments, actor, reason FROM ff.bulk_action
     WHERE state = 'running' ORDER BY bulk_id LIMIT 1 FOR UPDATE SKIP LOCKED
)
SELECT next.bulk_id, next.action, next.arguments, next.actor, next.reason, b.batch_no,
       b.execution_ids
  FROM next LEFT JOIN LATERAL (
        SELECT batch_no, execution_ids FROM ff.bulk_batch b
         WHERE b.bulk_id = next.bulk_id AND b.results IS NULL
         ORDER BY b.batch_no LIMIT 1) AS b ON true
"""

STORE_RESULTS: Final[LiteralString] = """
-- bulk.run_bulk_actions: its results
WITH stored AS (
    UPDATE ff.bulk_batch SET results = %(results)s::text[]
     WHERE bulk_id = %(bulk_id)s AND batch_no = %(batch_no)s
), refused AS (
    SELECT coalesce(jsonb_object_agg(code, refused), '{}') AS refused
      FROM (SELECT code, sum(refused) AS refused
              FROM (SELECT * FROM unnest(%(codes)s::text[], %(counts)s::integer[])
                                AS new (code, refused)
                     UNION ALL
                    SELECT old.key, old.value::integer
                      FROM ff.bulk_action a CROSS JOIN LATERAL jsonb_each_text(a.refused) AS old
                     WHERE a.bulk_id = %(bulk_id)s) AS both_of
             GROUP BY code) AS summed
)
UPDATE ff.bulk_action a
   SET done = a.done + cardinality(%(results)s::text[]), changed = a.changed + %(changed)s,
       repeated = a.repeated + %(repeated)s, refused = refused.refused,
       last_batch_at_ms = ff.now_ms()
  FROM refused WHERE a.bulk_id = %(bulk_id)s
"""

END_BULK_ACTION: Final[LiteralString] = """
-- bulk.run_bulk_actions: the end
UPDATE ff.bulk_action SET state = 'done', ended_at_ms = ff.now_ms() WHERE bulk_id = %(bulk_id)s
"""

FORGET_BULK_ACTIONS: Final[LiteralString] = """
-- bulk.run_bulk_actions: deletes old ones
WITH old AS (
    DELETE FROM ff.bulk_action WHERE ended_at_ms < ff.now_ms() - %(kept_ms)s::bigint
 RETURNING bulk_id
)
DELETE FROM ff.bulk_batch b USING old WHERE b.bulk_id = old.bulk_id
"""


class _Due(msgspec.Struct, frozen=True):
    due: bool


class _Batch(msgspec.Struct, frozen=True):
    bulk_id: UUID
    action: str
    arguments: str
    actor: str
    reason: str
    batch_no: int | None
    execution_ids: list[str] | None


async def bulk_due(conn: Connection) -> bool:
    """Is there a change of many executions that has not ended?"""
    return (await fetch_one(conn, BULK_DUE, _Due)).due


async def run_bulk_actions(conn: Connection, limit: int) -> int:
    """Do the next batch, whose size was fixed at the start; how many executions it had.

    The executions and the results change together, so each is done once. Needs a transaction.
    """
    batch = await fetch_maybe(conn, NEXT_BATCH, _Batch)
    if batch is None:  # there is none, or another process is at it
        return 0
    if batch.batch_no is None or batch.execution_ids is None:
        await execute(conn, END_BULK_ACTION, bulk_id=batch.bulk_id)
        await execute(conn, FORGET_BULK_ACTIONS, kept_ms=milliseconds(KEPT))
        return 1
    executions = [ExecutionId.parse(each) for each in batch.execution_ids]
    try:
        results = await do_action(
            conn,
            BulkActionKind(batch.action),
            executions,
            msgspec.json.decode(batch.arguments, type=BulkArguments),
            actor=batch.actor,
            reason=batch.reason,
        )
    except ValidationError as error:  # before anything was changed
        results = [error.code] * len(executions)
    counts = Counter(results)
    changed, repeated = counts.pop("changed", 0), counts.pop("repeated", 0)
    await execute(
        conn,
        STORE_RESULTS,
        bulk_id=batch.bulk_id,
        batch_no=batch.batch_no,
        results=results,
        codes=list(counts),
        counts=list(counts.values()),
        changed=changed,
        repeated=repeated,
    )
    return len(executions)
