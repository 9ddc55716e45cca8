"""Writes the frames of all attempts of a worker: gathered, and in the order of each attempt.

A frame that comes alone is sent at once. Those that follow it are gathered for 20 ms, or until
there are 64, and one statement appends them all; one statement is in flight at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from typing import TYPE_CHECKING, Final

from flowfabric.db.faults import is_trouble
from flowfabric.engine.streams.append_frame import Append
from flowfabric.errors import (
    EngineError,
    NotFound,
    StaleOwnerCannotAppend,
    StreamClosed,
    Unavailable,
)
from flowfabric.worker.durable.lease_lost import lease_lost

if TYPE_CHECKING:
    from flowfabric.engine.streams.frame import NewFrame
    from flowfabric.remote.engine_like import EngineLike
    from flowfabric.worker.running_attempt import RunningAttempt

log: Final = logging.getLogger("flowfabric.worker")
FLUSH_EVERY: Final = 0.02
FLUSH_AT: Final = 64
_MOST_FRAMES: Final = 500
_MOST_BYTES: Final = 4 * 1024 * 1024
_BUFFERED_FRAMES: Final = 1000
_BUFFERED_BYTES: Final = 1024 * 1024
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0
_REFUSED: Final = (NotFound, StaleOwnerCannotAppend, StreamClosed)
"""The answers of the engine to a caller that does not hold the lease."""


class AttemptFrames:
    """The frames of one attempt that are not in its stream yet."""

    def __init__(self, attempt: RunningAttempt) -> None:
        self.attempt = attempt
        self.buffered: list[NewFrame] = []
        self.size = 0
        """Bytes of the buffered frames."""
        self.written = asyncio.Event()
        """Set while nothing is buffered or in flight."""
        self.error: Exception | None = None
        """Why nothing more can be appended."""

    def check(self) -> None:
        """Raise why nothing more can be appended: `LeaseLost`, or what keeps the engine from it."""
        if isinstance(self.error, _REFUSED):
            lease_lost(self.attempt, self.error)
        if self.error is not None:
            raise self.error
        self.attempt.check_lease()


class FrameWriter:
    """Appends frames for one worker; an attempt that emits nothing has no part in it."""

    def __init__(self, engine: EngineLike) -> None:
        self._engine = engine
        self._waiting: dict[AttemptFrames, None] = {}
        self._count = 0
        self._hurry = asyncio.Event()
        self._flushed_at = 0.0
        self._task: asyncio.Task[None] | None = None

    async def add(self, attempt: RunningAttempt, frame: NewFrame) -> None:
        """The frame is appended soon; waits only for an attempt that is far ahead of the database.

        Raises `LeaseLost` once the lease is lost.
        """
        if attempt.frames is None:
            attempt.frames = AttemptFrames(attempt)
        frames = attempt.frames
        frames.check()
        frames.buffered.append(frame)
        frames.size += len(frame.payload)
        frames.written.clear()
        self._waiting[frames] = None
        self._count += 1
        if self._count >= FLUSH_AT:
            self._hurry.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write(), name="flowfabric frames")
        if len(frames.buffered) >= _BUFFERED_FRAMES or frames.size >= _BUFFERED_BYTES:
            await self.flush(attempt)

    async def flush(self, attempt: RunningAttempt) -> None:
        """Every frame of the attempt is committed; raises as `add`."""
        frames = attempt.frames
        if frames is None:
            return
        if not frames.written.is_set():
            self._hurry.set()
            await frames.written.wait()
        frames.check()

    async def close(self) -> None:
        """Stop writing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _write(self) -> None:
        while self._waiting:
            await self._gather()
            batch = self._next_batch()
            self._flushed_at = time.monotonic()
            await self._send(batch)

    async def _gather(self) -> None:
        """Return when it is time for the next flush."""
        await asyncio.sleep(0)  # what the handler emits without a pause goes together
        pause = self._flushed_at + FLUSH_EVERY - time.monotonic()
        if pause > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._hurry.wait()

    def _next_batch(self) -> dict[AttemptFrames, Append]:
        """Take buffered frames, oldest attempts first, as many as one statement may have."""
        batch: dict[AttemptFrames, Append] = {}
        room, size = _MOST_FRAMES, 0
        for frames in list(self._waiting):
            if room <= 0 or size >= _MOST_BYTES:
                break
            taken, frames.buffered = frames.buffered[:room], frames.buffered[room:]
            taken_size = sum(len(each.payload) for each in taken)
            frames.size -= taken_size
            room, size = room - len(taken), size + taken_size
            self._count -= len(taken)
            batch[frames] = Append(lease=frames.attempt.lease, frames=taken)
            if not frames.buffered:
                del self._waiting[frames]
        if self._count < FLUSH_AT and not self._waiting:
            self._hurry.clear()
        return batch

    async def _send(self, batch: dict[AttemptFrames, Append]) -> None:
        """Try until the engine has answered: a repeated append has the same id, and no effect."""
        pause = _FIRST_PAUSE
        while batch := self._without_lost(batch):
            try:
                answers = await self._engine.append_frames(list(batch.values()))
            except Exception as error:
                if isinstance(error, Unavailable) or not is_trouble(error):
                    for frames in batch:
                        self._settle(frames, error)
                    return
                log.warning("frames of %s attempts wait for the database: %s", len(batch), error)
                await asyncio.sleep(random.uniform(pause / 2, pause))
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            for frames, answer in zip(batch, answers, strict=True):
                self._settle(frames, answer if isinstance(answer, EngineError) else None)
            return

    def _without_lost(self, batch: dict[AttemptFrames, Append]) -> dict[AttemptFrames, Append]:
        for frames in [each for each in batch if each.attempt.lost]:
            self._settle(frames, None)
        return {each: append for each, append in batch.items() if not each.attempt.lost}

    def _settle(self, frames: AttemptFrames, error: Exception | None) -> None:
        """The frames that were sent are appended, or never will be."""
        frames.error = frames.error or error
        if frames.error is not None or frames.attempt.lost:
            self._count -= len(frames.buffered)
            frames.buffered.clear()
            self._waiting.pop(frames, None)
        if not frames.buffered:
            frames.written.set()
