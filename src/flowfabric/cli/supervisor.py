"""Several processes of a command under one supervisor, which restarts those that die."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Final

from flowfabric.worker.signals import CUT_SHORT

log: Final = logging.getLogger("flowfabric.supervisor")
_HEALTHY_AFTER: Final = 10.0
_CHECK_EVERY: Final = 0.2


class _Child:
    def __init__(
        self, command: list[str], environment: Mapping[str, str], pass_fds: Sequence[int]
    ) -> None:
        self._command, self._environment = command, {**os.environ, **environment}
        self._pass_fds = pass_fds
        self.failures = 0
        self.restarts = 0
        self.start_at = 0.0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.started = time.monotonic()
        # A session of its own: Ctrl-C reaches only the supervisor, which then drains all children.
        self.process = subprocess.Popen(
            self._command,
            env=self._environment,
            start_new_session=True,
            pass_fds=self._pass_fds,
        )

    def has_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def reschedule(self) -> float:
        """Set when to start again and return the delay.

        No delay if the process ran for a while, else a delay that doubles up to 30 seconds.
        """
        ran_for = time.monotonic() - self.started
        self.failures = 0 if ran_for > _HEALTHY_AFTER else self.failures + 1
        delay = 0.0 if self.failures == 0 else min(30.0, 0.5 * 2 ** (self.failures - 1))
        self.restarts += 1
        self.start_at = time.monotonic() + delay
        self.process = None
        return delay


def supervise(
    command: list[str],
    processes: int,
    *,
    environment: Mapping[str, str],
    on_end: Callable[[int], None] | None = None,
    pass_fds: Sequence[int] = (),
) -> int:
    """Keep `processes` copies of `command` running until a signal, or until one exits with 0.

    SIGTERM or SIGINT drains all of them; a second signal kills them. Returns the highest exit code,
    or after a second signal 128 and its number. `on_end` is called with the id of a process that
    has ended and is replaced. The processes inherit `pass_fds`, such as a socket.
    """
    stopping: list[int] = []
    children = [_Child(command, environment, pass_fds) for _ in range(processes)]

    def stop(number: int, _frame: FrameType | None) -> None:
        stopping.append(number)
        for child in children:
            if child.process is not None and child.process.poll() is None:
                child.process.send_signal(signal.SIGTERM if len(stopping) == 1 else signal.SIGKILL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    while not stopping:
        for child in children:
            if child.has_ended() and child.process is not None:
                code = child.process.returncode
                if code == 0:
                    stop(signal.SIGTERM, None)
                    break
                if on_end is not None:
                    on_end(child.process.pid)
                delay = child.reschedule()
                when = f"in {delay:g} s" if delay else "at once"
                log.warning(
                    "a process exited with %s; restarting %s",
                    code,
                    when,
                    extra={"exit_code": code, "restart_count": child.restarts},
                )
            if child.process is None and time.monotonic() >= child.start_at and not stopping:
                child.start()
        time.sleep(_CHECK_EVERY)
    codes = [_exit_code(child.process.wait()) for child in children if child.process]
    if len(stopping) > 1:
        log.warning(CUT_SHORT, signal.Signals(stopping[1]).name)
        return 128 + stopping[1]
    return max(codes, default=0)


def _exit_code(returned: int) -> int:
    """What a shell says of a process: 128 and the number of the signal that killed it."""
    return 128 - returned if returned < 0 else returned
