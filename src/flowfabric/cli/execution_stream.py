"""`ff executions stream`: what the handler of an execution emits, as it emits it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Annotated, Any

import typer

from flowfabric.cli.connection import ask
from flowfabric.cli.execution_waits import app
from flowfabric.cli.options import Id
from flowfabric.cli.output import AsJson, DatabaseUrl, console, cut, escape, json_text
from flowfabric.engine.engine import Engine
from flowfabric.engine.streams.frame import Frame
from flowfabric.ids import ExecutionId
from flowfabric.states import FrameMode, FrameVisibility


@app.command()
def stream(
    execution_id: Id,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print frames as they are emitted, to its end.")
    ] = False,
    attempt: Annotated[
        int | None, typer.Option(min=0, help="Only the frames of this attempt, from 0.")
    ] = None,
    after: Annotated[
        str | None, typer.Option(help="Continue after this frame: its cursor, as --json shows it.")
    ] = None,
    no_live: Annotated[
        bool, typer.Option("--no-live", help="Leave out the frames that are kept only for a while.")
    ] = False,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show the frames that the handler of an execution has emitted, through all its attempts.

    With --json each frame is one line.
    """
    wanted = ExecutionId.parse(execution_id)
    visibility = FrameVisibility.EXCLUDE_BEST_EFFORT if no_live else FrameVisibility.ALL

    async def show(engine: Engine) -> int:
        shown = 0
        frames = await engine.follow_stream(
            wanted, attempt=attempt, after=after, visibility=visibility, follow=follow
        )
        async with contextlib.aclosing(frames):
            async for frame in frames:
                shown += 1
                _show(frame, as_json)
        return shown

    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        if not ask(database_url, show) and not as_json:
            console.print("No frames are stored.")


def _show(frame: Frame, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json_text(_as_json(frame)) + "\n")
        sys.stdout.flush()
        return
    mode = "" if frame.mode is FrameMode.DURABLE else f" ({frame.mode.value})"
    fields = frame.fields
    text = fields["payload"] if fields["encoding"] == "utf8" else f"{len(frame.payload)} bytes"
    line = f"{frame.at:%H:%M:%S.%f}"[:-3] + f"Z {frame.attempt_index + 1} {frame.frame_type}"
    console.print(escape(f"{line}{mode} {cut(text, 200)}"), soft_wrap=True)


def _as_json(frame: Frame) -> dict[str, Any]:
    return {
        "id": str(frame.id),
        "cursor": frame.cursor,
        "attempt_index": frame.attempt_index,
        "fields": frame.fields,
    }
