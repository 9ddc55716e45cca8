"""A progress bar on standard error while a command waits for an execution."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from flowfabric.cli.output import visible
from flowfabric.engine.engine import Engine
from flowfabric.errors import FlowFabricError
from flowfabric.ids import ExecutionId

_LOOK_EVERY: Final = 0.25

T = TypeVar("T")


async def with_progress(
    engine: Engine,
    execution_id: ExecutionId,
    waiting: Coroutine[Any, Any, T],
    *,
    console: Console | None = None,
) -> T:
    """The result of `waiting`; meanwhile the bar shows what the handler reports by `ctx.progress`.

    Nothing is shown unless standard error is a terminal, or before the first report.
    """
    console = console or Console(file=sys.stderr)
    if not console.is_terminal:
        return await waiting
    showing = asyncio.create_task(_show(engine, execution_id, console))
    try:
        return await waiting
    finally:
        showing.cancel()
        await asyncio.wait((showing,), timeout=2.0)


async def _show(engine: Engine, execution_id: ExecutionId, console: Console) -> None:
    columns = (BarColumn(), TextColumn("{task.percentage:>3.0f}% {task.description}", markup=False))
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as bars:
        bar = bars.add_task("", total=100, visible=False)
        while True:
            with contextlib.suppress(FlowFabricError):  # the bar is late, and nothing else
                found = await engine.describe_execution(execution_id)
                if found is not None and found.progress_pct is not None:
                    message = visible(found.progress_message or "")
                    shown = found.progress_pct
                    bars.update(bar, completed=shown, description=message, visible=True)
                    bars.refresh()
            await asyncio.sleep(_LOOK_EVERY)
