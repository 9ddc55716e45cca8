"""Best-effort frames that are too old are deleted from streams that have no other frames."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one

# An append sets expires_at_ms only where it is not set: the frames of a busy stream are looked at
# once in a while, and the row of the stream is not indexed anew by every append.
EXPIRE_FRAMES: Final[LiteralString] = """
-- streams.expire_frames
WITH due AS (         -- the longest overdue first, passing over streams in use
    SELECT partition_key, execution_id, attempt_index,
           ff.now_ms() - 2 * best_effort_ttl_ms AS before_ms
      FROM ff.stream_meta
     WHERE expires_at_ms <= ff.now_ms()
     ORDER BY expires_at_ms LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM ff.stream_frame f USING due
     WHERE f.partition_key = ANY (ARRAY[due.partition_key])
       AND (f.execution_id, f.attempt_index) = (due.execution_id, due.attempt_index)
       AND f.ts_ms < due.before_ms AND f.mode = 'best_effort'
 RETURNING f.partition_key, f.execution_id, f.attempt_index
), counted AS (
    SELECT due.*, (SELECT count(*) FROM deleted d
                    WHERE (d.partition_key, d.execution_id, d.attempt_index)
                        = (due.partition_key, due.execution_id, due.attempt_index)) AS expired,
           (SELECT f.ts_ms FROM ff.stream_frame f
             WHERE (f.partition_key, f.execution_id, f.attempt_index)
                 = (due.partition_key, due.execution_id, due.attempt_index)
               AND f.ts_ms >= due.before_ms
             ORDER BY f.ts_ms, f.seq LIMIT 1) AS oldest_ms
      FROM due
), moved AS (         -- the next look is when the oldest that is left has expired
    UPDATE ff.stream_meta m
       SET best_effort_kept = m.best_effort_kept - counted.expired,
           expires_at_ms = counted.oldest_ms + 2 * m.best_effort_ttl_ms + 1
      FROM counted
     WHERE m.partition_key = ANY (ARRAY[counted.partition_key])
       AND (m.execution_id, m.attempt_index) = (counted.execution_id, counted.attempt_index)
 RETURNING 1
)
SELECT count(*) AS moved FROM moved
"""


async def expire_frames(conn: Connection, limit: int) -> int:
    """Delete frames older than twice their time to live, of at most `limit` streams."""
    return (await fetch_one(conn, EXPIRE_FRAMES, Moved, limit=limit)).moved
