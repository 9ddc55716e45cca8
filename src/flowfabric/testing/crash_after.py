"""A fault point: the worker dies right after a step is recorded."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from flowfabric.worker.durable.steps import after_recording


class Crashes:
    """How often a worker has died at the fault point."""

    def __init__(self) -> None:
        self.count = 0


@contextmanager
def crash_after(step: str, *, times: int = 1) -> Generator[Crashes]:
    """While the block is open, an attempt is lost when it has recorded this step, `times` times.

    As after a crash of its worker: the handler ends without an outcome, and its lease is not
    renewed any more. Once the lease has expired, another attempt finds the step done.
    """
    crashes = Crashes()

    def dies(name: str) -> bool:
        if name != step or crashes.count >= times:
            return False
        crashes.count += 1
        return True

    token = after_recording.set(dies)
    try:
        yield crashes
    finally:
        after_recording.reset(token)
