"""Frames are appended to the streams of running attempts, by the holders of their leases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.fence import SeenExecution, read_seen, refusal
from flowfabric.engine.streams.cursor import FrameId
from flowfabric.engine.streams.frame import NewFrame
from flowfabric.errors import (
    EngineError,
    ExecutionNotActive,
    LeaseExpired,
    StaleLease,
    StaleOwnerCannotAppend,
    StreamClosed,
    invalid_input,
)
from flowfabric.ids import check_type, new_uuid
from flowfabric.states import FrameMode

MAX_FRAMES: Final = 10_000
"""How many frames one call may append."""

APPEND_FRAMES: Final[LiteralString] = """
-- streams.append_frames
SELECT caller, last_ts_ms, last_seq, frame_count, summary_version
  FROM ff.append_frames(
       %(partition_key)s::smallint[], %(execution_id)s::uuid[], %(attempt_index)s::integer[],
       %(lease_epoch)s::bigint[], %(lease_id)s::uuid[], %(append_id)s::uuid[],
       %(caller)s::integer[], %(mode)s::text[], %(frame_type)s::text[], %(payload)s::bytea[],
       %(correlation_id)s::text[], %(replaces)s::boolean[], %(ttl_ms)s::bigint[],
       %(maxlen_floor)s::integer[], %(maxlen_ceiling)s::integer[],
       %(ema_alpha)s::double precision[])
"""


class Append(msgspec.Struct, frozen=True, kw_only=True):
    """Frames for the stream of the attempt that `lease` is for, in their order.

    `append_id` is the same when the call is repeated after a lost answer: the frames are then
    appended once. That holds until the next append to the same stream.
    """

    lease: Lease
    frames: Sequence[NewFrame]
    append_id: UUID = msgspec.field(default_factory=new_uuid)


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """The frame is in the stream."""

    stream_id: FrameId
    frame_count: int
    """Frames that were ever appended to the stream, up to this one."""
    summary_version: int | None = None
    """The version of the summary after this frame, for one of mode `summary`."""


class _Stream(msgspec.Struct, frozen=True):
    caller: int
    last_ts_ms: int
    last_seq: int
    frame_count: int
    summary_version: int


async def append_frames(
    conn: Connection, appends: Sequence[Append]
) -> list[list[Appended] | EngineError]:
    """The frames of every append whose lease is held are in their streams; in the order given.

    A refused append has no effect on the others: `StreamClosed` if the attempt does not run any
    more, `StaleOwnerCannotAppend` if another lease is held or this one has expired, `NotFound`.
    Raises `ValidationError(invalid_input)` for more than 10,000 frames, and for two appends by one
    lease.
    """
    appends = [check_type(each, Append, field="append") for each in appends]
    total = sum(len(each.frames) for each in appends)
    if total > MAX_FRAMES:
        raise invalid_input("frames", total, f"must be at most {MAX_FRAMES}")
    called = [each for each in appends if each.frames]
    if not called:
        return [[] for _ in appends]
    leases = [each.lease for each in called]
    for lease, count in Counter(leases).items():
        if count > 1:
            why = f"has {count} appends: give all its frames in one"
            raise invalid_input("lease", str(lease.execution_id), why)
    rows = await fetch_all(
        conn,
        APPEND_FRAMES,
        _Stream,
        append_id=[each.append_id for each in called],
        caller=[number for number, each in enumerate(called, 1) for _ in each.frames],
        **_frame_columns([frame for each in called for frame in each.frames]),
        **fence_columns(leases),
    )
    found = {row.caller: row for row in rows}
    refused = [lease for number, lease in enumerate(leases, 1) if number not in found]
    seen = iter(await read_seen(conn, refused))
    answers = iter(
        [
            _appended(each.frames, found[number])
            if number in found
            else _refusal(each.lease, next(seen))
            for number, each in enumerate(called, 1)
        ]
    )
    return [next(answers) if each.frames else [] for each in appends]


async def append_frame(conn: Connection, lease: Lease, frame: NewFrame) -> Appended:
    """The frame is at the end of the stream of its attempt.

    Raises as `append_frames` answers. Not idempotent: a repeated call appends once more.
    """
    [answer] = await append_frames(conn, [Append(lease=lease, frames=[frame])])
    if isinstance(answer, EngineError):
        raise answer
    return answer[0]


def _frame_columns(frames: Sequence[NewFrame]) -> dict[str, Any]:
    """The frames as array parameters; a column that no frame needs is None."""
    modes = [each.mode for each in frames]
    sized = [each if each.mode is FrameMode.BEST_EFFORT else None for each in frames]
    has_sized, has_patches = FrameMode.BEST_EFFORT in modes, FrameMode.SUMMARY in modes

    def knob(read: Callable[[NewFrame], Any]) -> list[Any] | None:
        return [each and read(each) for each in sized] if has_sized else None

    return {
        "mode": [mode.value for mode in modes],
        "frame_type": [each.frame_type for each in frames],
        "payload": [each.payload for each in frames],
        "correlation_id": [each.correlation_id for each in frames],
        "replaces": [each.replaces and each.mode is FrameMode.SUMMARY for each in frames]
        if has_patches
        else None,
        "ttl_ms": knob(lambda each: each.ttl_ms),
        "maxlen_floor": knob(lambda each: each.maxlen_floor),
        "maxlen_ceiling": knob(lambda each: each.maxlen_ceiling),
        "ema_alpha": knob(lambda each: each.ema_alpha),
    }


def _appended(frames: Sequence[NewFrame], last: _Stream) -> list[Appended]:
    """An answer for each frame, from that of the last one."""
    version, answers = last.summary_version, list[Appended]()
    for before, frame in enumerate(reversed(frames)):
        is_summary = frame.mode is FrameMode.SUMMARY
        answers.append(
            Appended(
                stream_id=FrameId(last.last_ts_ms, last.last_seq - before),
                frame_count=last.frame_count - before,
                summary_version=version if is_summary else None,
            )
        )
        version -= is_summary
    return answers[::-1]


def _refusal(lease: Lease, seen: SeenExecution) -> EngineError:
    found = refusal(lease, seen)
    if isinstance(found, ExecutionNotActive):
        return StreamClosed(lease.execution_id, lease.attempt_index, phase=found.lifecycle_phase)
    if isinstance(found, StaleLease | LeaseExpired):
        return StaleOwnerCannotAppend(lease.execution_id, lease.attempt_index, why=str(found))
    return found
