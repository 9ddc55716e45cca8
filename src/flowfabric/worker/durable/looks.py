"""Looks once a second at what the running handlers of a worker wait for, with one statement."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flowfabric.errors import FlowFabricError

if TYPE_CHECKING:
    from flowfabric.engine.executions.look_at_waits import WaitsSeen
    from flowfabric.remote.engine_like import EngineLike
    from flowfabric.worker.running_attempt import RunningAttempt

log: Final = logging.getLogger("flowfabric.worker")
EVERY: Final = 1.0


class Looks:
    """The attempts that have an open wait while one of their steps runs."""

    def __init__(self, engine: EngineLike) -> None:
        self._engine = engine
        self._told: dict[RunningAttempt, Callable[[], None]] = {}
        self._seen: dict[RunningAttempt, WaitsSeen | None] = {}
        self._looking: asyncio.Task[None] | None = None

    def add(self, attempt: RunningAttempt, told: Callable[[], None]) -> None:
        """Call `told` whenever something has happened that the attempt may wait for.

        Also after the first look, because it may have happened before that.
        """
        if attempt in self._told:
            return
        self._told[attempt], self._seen[attempt] = told, None
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="flowfabric looks")

    def discard(self, attempt: RunningAttempt) -> None:
        """The attempt has no open wait any more, or is parked."""
        self._told.pop(attempt, None)
        self._seen.pop(attempt, None)
        if not self._told and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            attempts = list(self._told)
            try:
                found = await self._engine.look_at_waits([each.execution_id for each in attempts])
            except FlowFabricError as error:
                log.debug("cannot look at what handlers wait for: %s", error)
                continue
            for attempt in attempts:
                seen = found.get(attempt.execution_id)
                if attempt in self._told and seen != self._seen[attempt]:
                    self._seen[attempt] = seen
                    self._told[attempt]()
