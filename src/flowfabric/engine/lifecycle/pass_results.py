"""The result of one execution becomes the input of another that has not begun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.lifecycle.sql.submitted import SUBMITTED_KEPT
from flowfabric.ids import ExecutionId

RESULTS_PASSED: Final[LiteralString] = (
    """
-- lifecycle.pass_results
WITH passed AS (      -- results, for targets that are runnable; of several the last counts
    SELECT DISTINCT ON (pairs.partition_key, pairs.target) pairs.partition_key, pairs.target,
           a.result, coalesce(a.result_encoding, b.payload_encoding) AS result_encoding
      FROM unnest(%(partition_key)s::smallint[], %(source)s::uuid[], %(target)s::uuid[])
           WITH ORDINALITY AS pairs (partition_key, source, target, ordinal)
      JOIN ff.exec_core u
        ON (u.partition_key, u.execution_id) = (pairs.partition_key, pairs.source)
      JOIN ff.attempt a
        ON (a.partition_key, a.execution_id, a.attempt_index)
         = (u.partition_key, u.execution_id, u.attempt_index)
      JOIN ff.exec_body b
        ON (b.partition_key, b.execution_id) = (u.partition_key, u.execution_id)
      JOIN ff.execution d
        ON (d.partition_key, d.execution_id) = (pairs.partition_key, pairs.target)
     WHERE a.result IS NOT NULL AND d.lifecycle_phase = 'runnable'
     ORDER BY pairs.partition_key, pairs.target, pairs.ordinal DESC
), written AS (
    UPDATE ff.exec_body b
       SET payload = passed.result, payload_encoding = passed.result_encoding,
           """
    + SUBMITTED_KEPT
    + """
      FROM passed
     WHERE (b.partition_key, b.execution_id) = (passed.partition_key, passed.target)
 RETURNING 1
)
SELECT count(*) AS moved FROM written
"""
)


async def pass_results(conn: Connection, pairs: Sequence[tuple[ExecutionId, ExecutionId]]) -> int:
    """For each (source, target) the result of the source is the input of the target; how many.

    A source without a result, and a target that runs or has ended, are left out.
    """
    return (
        await fetch_one(
            conn,
            RESULTS_PASSED,
            Moved,
            partition_key=[source.partition_key for source, _ in pairs],
            source=[source.uuid for source, _ in pairs],
            target=[target.uuid for _, target in pairs],
        )
    ).moved
