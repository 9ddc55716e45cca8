"""Tasks that run beside the claim loop of a worker, and end with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final

STOP_WITHIN: Final = 2.0
"""Seconds that a task has to end once it is cancelled."""


def start(stack: contextlib.AsyncExitStack, work: Coroutine[Any, Any, None], name: str) -> None:
    """Run `work` in the background until the stack is closed."""
    stack.push_async_callback(cancel, asyncio.create_task(work, name=name))


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end.

    A task that hangs on a broken connection ends later, when its pool is closed.
    """
    task.cancel()
    await asyncio.wait((task,), timeout=STOP_WITHIN)
