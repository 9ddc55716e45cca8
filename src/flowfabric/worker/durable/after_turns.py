"""Waits for turns of the event loop, without a task that runs in each of them."""

from __future__ import annotations

import asyncio


def after_turns(turns: int, *, pause: float) -> asyncio.Future[None]:
    """Done after `pause` seconds and so many turns of the event loop: what is ready runs first."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def turn(left: int) -> None:
        if left:
            loop.call_soon(turn, left - 1)
        elif not over.done():
            over.set_result(None)

    loop.call_later(pause, turn, turns)
    return over
