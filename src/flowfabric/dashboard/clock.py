"""What time it is for the dashboard: that of the database."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Final

from flowfabric.db.pool import Pool
from flowfabric.db.read_clock import read_clock

KEPT: Final = 1.0
"""Seconds for which the clock of the database is not read again."""


class DatabaseClock:
    """The clock of the database, read once a second at most."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._read: tuple[float, datetime] | None = None

    async def now(self) -> datetime:
        """The time of the database; raises `TransportError` if it does not answer."""
        at = time.monotonic()
        if self._read is None or at - self._read[0] > KEPT:
            self._read = at, await read_clock(self._pool)
        return self._read[1] + timedelta(seconds=at - self._read[0])
