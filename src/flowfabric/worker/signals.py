"""SIGTERM and SIGINT stop the worker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Generator
from typing import Final

log: Final = logging.getLogger("flowfabric.worker")
CUT_SHORT: Final = (
    "a second %s cut the stop short; what still ran is claimed again after its lease has expired"
)


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Generator[None]:
    """Call `stop` at the first SIGTERM or SIGINT; a second one ends the process at once.

    The exit code is then 128 and the number of the second signal, as in a shell.
    """
    loop = asyncio.get_running_loop()
    received = 0

    def on_signal(number: signal.Signals) -> None:
        nonlocal received
        received += 1
        if received > 1:
            log.warning(CUT_SHORT, number.name)
            raise SystemExit(128 + number)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
