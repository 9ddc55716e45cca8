"""Processes of one command leave their counters in a directory, so that one scrape has them all.

Each process writes a file every second, and once more at its end. The supervisor adds the file of a
process that has ended to the file of ended ones: what it counted stays counted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from pathlib import Path
from typing import Final

import msgspec

from flowfabric.metrics.snapshot import Snapshot, added, snapshot

METRICS_DIR: Final = "FF_METRICS_DIR"
"""The directory of the processes of one command; the supervisor sets it for its children."""
WRITTEN_EVERY: Final = 1.0
"""Seconds between two files of a process."""
_ENDED: Final = "ended.json"

log: Final = logging.getLogger("flowfabric.metrics")


class SharedCounters:
    """The counters of all processes that were given the same directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def of_environment(cls) -> SharedCounters | None:
        """Those that `FF_METRICS_DIR` names; None for a process that stands alone."""
        directory = os.environ.get(METRICS_DIR)
        return cls(Path(directory)) if directory else None

    @property
    def environment(self) -> dict[str, str]:
        """What tells a child process to share its counters here."""
        return {METRICS_DIR: str(self._directory)}

    def start(self) -> None:
        """Write the counters of this process every second from now on."""
        self._thread = threading.Thread(target=self._main, name="flowfabric metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write them a last time."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self.write()

    def write(self) -> None:
        """The others see the counters of this process as they are now."""
        self._store(f"{os.getpid()}.json", snapshot())

    def read(self) -> Snapshot:
        """The counters of all processes together; those of this one as they are now."""
        own = f"{os.getpid()}.json"
        others = [self._load(path) for path in self._directory.glob("*.json") if path.name != own]
        return added((snapshot(), *others))

    def ended(self, pid: int) -> None:
        """The process has ended: its counts stay, its levels are gone."""
        path = self._directory / f"{pid}.json"
        last, before = self._load(path), self._load(self._directory / _ENDED)
        self._store(_ENDED, added((before, last.without_levels())))
        path.unlink(missing_ok=True)

    def _main(self) -> None:
        while not self._stopping.wait(WRITTEN_EVERY):
            try:
                self.write()
            except OSError as error:
                log.warning("cannot leave the counters of this process: %s", error)

    def _store(self, name: str, taken: Snapshot) -> None:
        """Replace the file in one step: a reader sees the one before or this one."""
        fresh = self._directory / f"{name}.{os.getpid()}.new"
        fresh.write_bytes(msgspec.json.encode(taken))
        fresh.replace(self._directory / name)

    def _load(self, path: Path) -> Snapshot:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode(path.read_bytes(), type=Snapshot)
        return Snapshot()
