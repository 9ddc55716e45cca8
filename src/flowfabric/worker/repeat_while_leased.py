"""Repeats a call of a handler over trouble with the database, for as long as its lease is held."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple

from flowfabric.db.faults import is_trouble
from flowfabric.errors import FlowFabricError, Unavailable

if TYPE_CHECKING:
    from flowfabric.worker.running_attempt import RunningAttempt

log: Final = logging.getLogger("flowfabric.worker")
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def repeat_while_leased(
    attempt: RunningAttempt, operation: Callable[[*Ts], Awaitable[T]], *args: *Ts
) -> T:
    """The result of an idempotent operation, repeated while the database is in trouble.

    Pauses grow from 0.1 to 5 s, with full jitter. Raises `LeaseLost` once the lease is lost, and
    `Unavailable` at once: an operator has to act first. Every other error is the operation's own.
    """
    pause = _FIRST_PAUSE
    while True:
        attempt.check_lease()
        try:
            return await operation(*args)
        except FlowFabricError as error:
            if isinstance(error, Unavailable) or not is_trouble(error):
                raise
            if pause == _FIRST_PAUSE:
                log.warning("%s repeats a call until the database answers: %s", attempt, error)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(random.uniform(0, pause)):
                await attempt.lost_event.wait()
        pause = min(pause * 2, _LONGEST_PAUSE)
