"""Frames of many streams, each with the state of its stream: one query for all that is asked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.streams.cursor import LAST, FrameId
from flowfabric.engine.streams.frame import Frame
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId, check_type, id_columns
from flowfabric.instants import instant
from flowfabric.states import FrameMode, FrameVisibility, StreamClosedReason

MAX_COUNT: Final = 10_000
"""How many frames one read may ask for."""
_MAX_ATTEMPT: Final = 2**31 - 1

# A stream is closed while its attempt is over. That is read from the attempt itself: the lease of
# a running attempt, and the outcome of one that has stopped. So a stream is closed by the very
# transaction that ends the attempt, and open again when the attempt goes on.
READ_FRAMES: Final[LiteralString] = """
-- streams.read_frames
WITH asked AS (       -- each with its stream and its execution
    SELECT a.*, e.execution_id IS NOT NULL AS found, m.execution_id IS NOT NULL AS written,
           e.lifecycle_phase = 'terminal' AS ended, e.attempt_index AS last_attempt,
           e.leased AND e.attempt_index = a.attempt_index AS runs, e.terminal_outcome
      FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[],
                  %(attempt_index)s::integer[], %(from_ms)s::bigint[], %(from_seq)s::integer[],
                  %(to_ms)s::bigint[], %(to_seq)s::integer[], %(count_limit)s::integer[],
                  %(durable_only)s::boolean[], %(newest)s::boolean[]) WITH ORDINALITY
        AS a (partition_key, execution_id, attempt_index, from_ms, from_seq, to_ms, to_seq,
              count_limit, durable_only, newest, ordinal)
      LEFT JOIN LATERAL (
           SELECT e.* FROM ff.execution e
            WHERE (e.partition_key, e.execution_id) = (a.partition_key, a.execution_id)
           OFFSET 0) AS e ON true
      LEFT JOIN LATERAL (
           SELECT m.execution_id FROM ff.stream_meta m
            WHERE (m.partition_key, m.execution_id, m.attempt_index)
                = (a.partition_key, a.execution_id, a.attempt_index)
           OFFSET 0) AS m ON true
), frames AS (
    SELECT asked.ordinal, f.ts_ms, f.seq, f.mode, f.frame_type, f.payload, f.correlation_id,
           f.summary_version, f.ttl_ms
      FROM asked CROSS JOIN LATERAL (
          (SELECT f.* FROM ff.stream_frame f
            WHERE NOT asked.newest AND (f.partition_key, f.execution_id, f.attempt_index)
                = (asked.partition_key, asked.execution_id, asked.attempt_index)
              AND (f.ts_ms, f.seq) >= (asked.from_ms, asked.from_seq)
              AND (f.ts_ms, f.seq) <= (asked.to_ms, asked.to_seq)
              AND NOT (asked.durable_only AND f.mode = 'best_effort')
            ORDER BY f.ts_ms, f.seq LIMIT asked.count_limit)
           UNION ALL
          (SELECT f.* FROM ff.stream_frame f
            WHERE asked.newest AND (f.partition_key, f.execution_id, f.attempt_index)
                = (asked.partition_key, asked.execution_id, asked.attempt_index)
              AND (f.ts_ms, f.seq) >= (asked.from_ms, asked.from_seq)
              AND (f.ts_ms, f.seq) <= (asked.to_ms, asked.to_seq)
              AND NOT (asked.durable_only AND f.mode = 'best_effort')
            ORDER BY f.ts_ms DESC, f.seq DESC LIMIT asked.count_limit)) AS f
     WHERE asked.written
)
SELECT ordinal, NULL::bigint AS ts_ms, NULL::integer AS seq, NULL::text AS mode,
       NULL::text AS frame_type, NULL::bytea AS payload, NULL::text AS correlation_id,
       NULL::integer AS summary_version, NULL::bigint AS ttl_ms, found, ended, last_attempt,
       closed.at_ms AS closed_at_ms, closed.reason AS closed_reason
  FROM asked
  LEFT JOIN LATERAL (
       SELECT t.ended_at_ms AS at_ms,
              CASE WHEN t.failure_reason = 'attempt_timeout' AND t.failure_category = 'timeout'
                   THEN 'expired'
                   WHEN s.execution_id IS NOT NULL THEN 'suspension_timeout'
                   WHEN asked.terminal_outcome = 'skipped'
                    AND asked.attempt_index = asked.last_attempt THEN 'dependency_impossible'
                   ELSE CASE t.outcome
                        WHEN 'success' THEN 'attempt_success' WHEN 'failed' THEN 'attempt_failure'
                        WHEN 'retry' THEN 'attempt_failure'
                        WHEN 'cancelled' THEN 'attempt_cancelled' WHEN 'expired' THEN 'expired'
                        WHEN 'lease_expired_reclaimable' THEN 'lease_expired'
                        WHEN 'interrupted_reclaimed' THEN 'reclaimed'
                        WHEN 'restarted' THEN 'restarted' END END AS reason
         FROM ff.attempt t
         LEFT JOIN ff.suspension_current s
           ON s.partition_key = ANY (ARRAY[t.partition_key]) AND s.execution_id = t.execution_id
          AND s.attempt_index = t.attempt_index AND s.closed_at_ms = t.ended_at_ms
          AND s.close_reason IN ('timed_out_fail', 'timed_out_cancel', 'timed_out_expire')
        WHERE (t.partition_key, t.execution_id, t.attempt_index)
            = (asked.partition_key, asked.execution_id, asked.attempt_index)
          AND t.outcome NOT IN ('interrupted', 'waiting_children', 'suspended', 'lease_revoked')
       OFFSET 0) AS closed ON asked.written AND NOT asked.runs
 UNION ALL
SELECT frames.*, NULL, NULL, NULL, NULL, NULL FROM frames
 ORDER BY ordinal, ts_ms NULLS FIRST, seq
"""


class FrameRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which frames of one stream are asked for; both ends are included."""

    execution_id: ExecutionId
    attempt_index: int
    start: FrameId
    end: FrameId = LAST
    count_limit: int
    visibility: FrameVisibility = FrameVisibility.ALL
    newest: bool = False
    """Are the last frames wanted if there are more than `count_limit`? They come in order, too."""

    def __post_init__(self) -> None:
        check_type(self.execution_id, ExecutionId, field="execution_id")
        check_attempt(self.attempt_index)
        if type(self.count_limit) is not int or self.count_limit < 1:
            raise invalid_input("count_limit", self.count_limit, "must be >= 1")
        if self.count_limit > MAX_COUNT:
            raise invalid_input("count_limit", self.count_limit, f"must be <= {MAX_COUNT}")


class StreamPage(msgspec.Struct, frozen=True, kw_only=True):
    """Frames of one stream in their order, and whether more can come."""

    frames: list[Frame]
    closed_at: datetime | None = None
    closed_reason: StreamClosedReason | None = None
    """Why the stream is closed; None while it is open."""
    found: bool = True
    """Does the execution exist?"""
    ended: bool = False
    """Has the execution ended?"""
    last_attempt: int = 0
    """The attempt of the execution that runs, that ran last, or that comes next."""


class _Row(msgspec.Struct, frozen=True):
    ordinal: int
    ts_ms: int | None
    seq: int
    mode: str
    frame_type: str
    payload: bytes
    correlation_id: str | None
    summary_version: int | None
    ttl_ms: int | None
    found: bool
    ended: bool | None
    last_attempt: int | None
    closed_at_ms: int | None
    closed_reason: str | None


def check_attempt(attempt_index: int) -> None:
    """Raise `ValidationError(invalid_input)` unless it is the index of an attempt."""
    if type(attempt_index) is not int or not 0 <= attempt_index <= _MAX_ATTEMPT:
        raise invalid_input("attempt_index", attempt_index, "must be a whole number from 0")


async def read_frames(conn: Connection, requests: Sequence[FrameRequest]) -> list[StreamPage]:
    """What is asked for, in the order given, all as of one moment."""
    rows = await fetch_all(
        conn,
        READ_FRAMES,
        _Row,
        attempt_index=[each.attempt_index for each in requests],
        from_ms=[each.start.ms for each in requests],
        from_seq=[each.start.seq for each in requests],
        to_ms=[each.end.ms for each in requests],
        to_seq=[each.end.seq for each in requests],
        count_limit=[each.count_limit for each in requests],
        durable_only=[each.visibility is FrameVisibility.EXCLUDE_BEST_EFFORT for each in requests],
        newest=[each.newest for each in requests],
        **id_columns([each.execution_id for each in requests]),
    )
    pages: list[StreamPage] = []
    for row in rows:  # the row of a stream comes before those of its frames
        if row.ts_ms is None:
            pages.append(_page(row))
        else:
            attempt_index = requests[row.ordinal - 1].attempt_index
            pages[-1].frames.append(_frame(row, FrameId(row.ts_ms, row.seq), attempt_index))
    return pages


def _page(row: _Row) -> StreamPage:
    closed = row.closed_reason is not None
    return StreamPage(
        frames=[],
        closed_at=instant(row.closed_at_ms) if closed else None,
        closed_reason=StreamClosedReason(row.closed_reason) if closed else None,
        found=row.found,
        ended=bool(row.ended),
        last_attempt=row.last_attempt or 0,
    )


def _frame(row: _Row, frame_id: FrameId, attempt_index: int) -> Frame:
    return Frame(
        id=frame_id,
        attempt_index=attempt_index,
        mode=FrameMode(row.mode),
        frame_type=row.frame_type,
        payload=row.payload,
        correlation_id=row.correlation_id,
        summary_version=row.summary_version,
        ttl=None if row.ttl_ms is None else row.ttl_ms / 1000,
    )
