"""The frames of one stream, from one place to another."""

from __future__ import annotations

from flowfabric.engine.streams.cursor import END, START, lower_bound, upper_bound
from flowfabric.engine.streams.frame import check_word
from flowfabric.engine.streams.read_frames import FrameRequest, StreamPage
from flowfabric.engine.streams.reader import StreamReader
from flowfabric.ids import ExecutionId
from flowfabric.states import FrameVisibility


async def read_stream(
    reader: StreamReader,
    execution_id: ExecutionId,
    attempt_index: int,
    *,
    from_: str = START,
    to: str = END,
    count_limit: int = 100,
    visibility: FrameVisibility = FrameVisibility.ALL,
    newest: bool = False,
) -> StreamPage:
    """The frames from `from_` to `to`, both included, in their order; at most `count_limit`.

    Of more than `count_limit` the first are given, or with `newest` the last.

    A place is `start`, `end`, `<ms>-<seq>`, or `<ms>`, which means the whole millisecond. A stream
    that does not exist is empty and open. Raises `ValidationError(invalid_input)` for a place, a
    visibility, an attempt or a `count_limit` (1 to 10,000) that is not valid, and
    `ResourceExhausted` if too many streams are read at once.
    """
    request = FrameRequest(
        execution_id=execution_id,
        attempt_index=attempt_index,
        start=lower_bound(from_, field="from"),
        end=upper_bound(to, field="to"),
        count_limit=count_limit,
        visibility=check_word(visibility, FrameVisibility, field="visibility"),
        newest=newest,
    )
    with reader.limited():
        return await reader.read(request)
