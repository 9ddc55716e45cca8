"""SIGTERM and SIGINT stop the worker."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Generator


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Generator[None]:
    """Call `stop` at the first SIGTERM or SIGINT; a second one ends the process at once."""
    loop = asyncio.get_running_loop()
    received = 0

    def on_signal() -> None:
        nonlocal received
        received += 1
        if received > 1:
            raise SystemExit(130)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
