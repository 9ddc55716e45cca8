"""Several worker processes under one: started and stopped together, restarted when one dies."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from types import FrameType
from typing import Final

log: Final = logging.getLogger("flowfabric.supervisor")
_HEALTHY_AFTER: Final = 10.0
_LOOK_EVERY: Final = 0.2


class _Child:
    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        self._command, self._environment = command, {**os.environ, **environment}
        self.failures = 0
        self.start_at = 0.0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.started = time.monotonic()
        # A session of its own: Ctrl-C reaches the supervisor alone, which then lets all drain.
        self.process = subprocess.Popen(
            self._command, env=self._environment, start_new_session=True
        )

    def died(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def reschedule(self) -> float:
        """When to try again: at once after a healthy life, later and later otherwise."""
        lived = time.monotonic() - self.started
        self.failures = 0 if lived > _HEALTHY_AFTER else self.failures + 1
        wait = 0.0 if self.failures == 0 else min(30.0, 0.5 * 2 ** (self.failures - 1))
        self.start_at = time.monotonic() + wait
        self.process = None
        return wait


def supervise(command: list[str], processes: int, *, environment: Mapping[str, str]) -> int:
    """Keep `processes` copies of `command` alive until SIGTERM or SIGINT, or one has finished.

    Then every one drains; a second signal kills them. The worst of their exit codes.
    """
    stopping: list[int] = []
    children = [_Child(command, environment) for _ in range(processes)]

    def stop(number: int, _frame: FrameType | None) -> None:
        stopping.append(number)
        for child in children:
            if child.process is not None and child.process.poll() is None:
                child.process.send_signal(signal.SIGTERM if len(stopping) == 1 else signal.SIGKILL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    while not stopping:
        for child in children:
            if child.died() and child.process is not None:
                code = child.process.returncode
                if code == 0:
                    stop(signal.SIGTERM, None)
                    break
                log.warning("a worker process ended with %s; next in %gs", code, child.reschedule())
            if child.process is None and time.monotonic() >= child.start_at and not stopping:
                child.start()
        time.sleep(_LOOK_EVERY)
    return max((abs(child.process.wait()) for child in children if child.process), default=0)
