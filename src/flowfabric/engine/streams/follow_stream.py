"""The frames of an execution as they come, through all its attempts, until it has ended."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator
from typing import Final

from flowfabric.db.faults import is_trouble
from flowfabric.engine.streams.cursor import FIRST, FrameId
from flowfabric.engine.streams.cursor import after as place_after
from flowfabric.engine.streams.frame import Frame, check_word
from flowfabric.engine.streams.read_frames import FrameRequest, check_attempt
from flowfabric.engine.streams.reader import StreamReader, is_over
from flowfabric.engine.streams.tail_stream import following
from flowfabric.errors import FlowFabricError, NotFound, Unavailable, invalid_input
from flowfabric.ids import ExecutionId, check_is_text
from flowfabric.states import FrameVisibility

log: Final = logging.getLogger("flowfabric.streams")
_PAGE: Final = 200


async def follow_stream(
    reader: StreamReader,
    execution_id: ExecutionId,
    *,
    attempt: int | None = None,
    after: str | None = None,
    visibility: FrameVisibility = FrameVisibility.ALL,
    follow: bool = True,
) -> AsyncGenerator[Frame]:
    """The frames of every attempt, or only of `attempt`, each as soon as it is committed.

    Goes on after the frame whose `cursor` is `after`; with `attempt` also a bare id of a frame.
    Ends when no frame can follow: with the execution, or the attempt. With `follow=False` it ends
    with the frames that are there. It waits while the database is out of reach. Raises
    `ValidationError(invalid_input)` at once, and `NotFound` when it is first asked for a frame.
    """
    number, place = _begin(attempt, after)
    wanted = check_word(visibility, FrameVisibility, field="visibility")
    return _follow(reader, execution_id, number, place, wanted, follow=follow, only=attempt)


async def _follow(
    reader: StreamReader,
    execution_id: ExecutionId,
    number: int,
    place: FrameId,
    visibility: FrameVisibility,
    *,
    follow: bool,
    only: int | None,
) -> AsyncGenerator[Frame]:
    while True:
        request = FrameRequest(
            execution_id=execution_id,
            attempt_index=number,
            start=following(place),
            count_limit=_PAGE,
            visibility=visibility,
        )
        try:
            page = await reader.tail(request, None if follow else 0, attempt_only=False)
        except FlowFabricError as error:
            if not (follow and is_trouble(error)) or isinstance(error, Unavailable):
                raise
            log.warning("cannot read the stream of %s yet: %s", execution_id, error)
            await asyncio.sleep(random.uniform(0.1, 1.0))
            continue
        if not page.found:
            raise NotFound("execution", execution_id)
        for frame in page.frames:
            yield frame
            place = frame.id
        if page.frames:
            continue
        if only is None and page.last_attempt > number:
            number, place = number + 1, FIRST
        elif is_over(page, request) or not follow:
            return


def _begin(attempt: int | None, after: str | None) -> tuple[int, FrameId]:
    """The attempt and the place to begin after."""
    if attempt is not None:
        check_attempt(attempt)
    if after is None:
        return attempt or 0, FIRST
    number, separator, place = check_is_text(after, field="after").rpartition(":")
    if not separator:
        if attempt is None:
            rule = "must be the cursor of a frame, such as 0:1767225600000-0"
            raise invalid_input("after", after, rule)
        return attempt, place_after(place)
    if not (number.isascii() and number.isdigit() and len(number) <= 9):
        raise invalid_input("after", after, "must begin with the number of an attempt")
    if attempt is not None and int(number) != attempt:
        raise invalid_input("after", after, f"is not a place in attempt {attempt}")
    return int(number), place_after(place)
