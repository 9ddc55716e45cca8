"""What tests of streams share: frames, appends, and what the tables hold."""

from __future__ import annotations

from typing import Any

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.streams.append_frame import Append, Appended, append_frames
from flowfabric.engine.streams.cursor import FIRST, LAST
from flowfabric.engine.streams.frame import Frame, NewFrame
from flowfabric.engine.streams.read_frames import FrameRequest, StreamPage, read_frames
from flowfabric.ids import ExecutionId
from flowfabric.states import FrameMode

SUMMARY, LIVE = FrameMode.SUMMARY, FrameMode.BEST_EFFORT


def frame(payload: bytes | str = b"x", **fields: Any) -> NewFrame:
    return NewFrame(payload=payload.encode() if isinstance(payload, str) else payload, **fields)


def patch(document: object, **fields: Any) -> NewFrame:
    return NewFrame(payload=msgspec.json.encode(document), mode=SUMMARY, **fields)


async def appended(db: Connection, lease: Lease, *frames: NewFrame) -> list[Appended]:
    """Append the frames in one call, which must not be refused."""
    [answer] = await append_frames(db, [Append(lease=lease, frames=frames)])
    assert isinstance(answer, list), answer
    return answer


async def page(db: Connection, lease: Lease, attempt_index: int | None = None) -> StreamPage:
    """The whole stream, as it is."""
    request = FrameRequest(
        execution_id=lease.execution_id,
        attempt_index=lease.attempt_index if attempt_index is None else attempt_index,
        start=FIRST,
        end=LAST,
        count_limit=10_000,
    )
    return (await read_frames(db, [request]))[0]


async def frames(db: Connection, lease: Lease) -> list[Frame]:
    return (await page(db, lease)).frames


async def texts(db: Connection, lease: Lease) -> list[str]:
    return [each.text for each in await frames(db, lease)]


async def meta(db: Connection, execution_id: ExecutionId) -> dict[str, Any]:
    """The row of the only stream of an execution."""
    [row] = await db.fetch(
        "SELECT * FROM ff.stream_meta WHERE execution_id = $1", execution_id.uuid
    )
    return dict(row)
