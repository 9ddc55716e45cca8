"""The next frames of one stream, as soon as there are any."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from flowfabric.engine.streams.cursor import BEGINNING, FIRST, LAST, FrameId
from flowfabric.engine.streams.cursor import after as place_after
from flowfabric.engine.streams.frame import check_word
from flowfabric.engine.streams.read_frames import FrameRequest, StreamPage
from flowfabric.engine.streams.reader import StreamReader
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.policy import milliseconds
from flowfabric.states import FrameVisibility

MAX_BLOCK: Final = 30.0


async def tail_stream(
    reader: StreamReader,
    execution_id: ExecutionId,
    attempt_index: int,
    *,
    after: str = BEGINNING,
    block: float | timedelta = 0.0,
    count_limit: int = 50,
    visibility: FrameVisibility = FrameVisibility.ALL,
) -> StreamPage:
    """The frames after the place `after`, which is `<ms>-<seq>` or `<ms>`; `0-0` is the beginning.

    If there are none and the stream is open, waits up to `block` (30) seconds for one, or for the
    end of the attempt; then the page may be empty. Waiting holds no connection. Raises as
    `read_stream`, also for `start` and `end`.
    """
    seconds = milliseconds(block, field="block") / 1000
    if not 0 <= seconds <= MAX_BLOCK:
        raise invalid_input("block", block, f"must be 0 to {MAX_BLOCK:g} seconds")
    request = FrameRequest(
        execution_id=execution_id,
        attempt_index=attempt_index,
        start=following(place_after(after)),
        count_limit=count_limit,
        visibility=check_word(visibility, FrameVisibility, field="visibility"),
    )
    with reader.limited():
        return await reader.tail(request, seconds)


def following(place: FrameId) -> FrameId:
    """The first place after this one; the beginning is before the first frame."""
    if place in (FIRST, LAST):
        return place
    if place.seq == LAST.seq:
        return FrameId(place.ms + 1, 0)
    return FrameId(place.ms, place.seq + 1)
