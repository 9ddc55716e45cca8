"""When a worker that runs until it is idle may stop."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Final

from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.errors import OperationTimeout, TransportError

SWEPT_WITHIN: Final = 5.0
"""Seconds after the expiry of a lease within which a sweep makes the execution claimable."""


class Idleness:
    """Nothing is claimable, and no execution of a dead worker is about to be.

    An execution is waited for if its lease expires within one lease TTL after the worker ran out of
    work. A holder that lives renews the lease beyond that, so its work is not waited for. After the
    TTL and the time of a sweep nothing is waited for.
    """

    def __init__(self, lease_ttl: float) -> None:
        self._lease_ttl = lease_ttl
        self._until: datetime | None = None
        self._at_the_latest: float | None = None

    def busy(self) -> None:
        """The worker has claimed something: what is waited for is decided anew afterwards."""
        self._until = self._at_the_latest = None

    async def reached(self, engine: Engine, claimant: Claimant) -> bool:
        """The worker has nothing to do; may it stop? False while the database does not answer."""
        if self._at_the_latest is None:
            self._at_the_latest = time.monotonic() + self._lease_ttl + SWEPT_WITHIN
        try:
            answer = await engine.count_expiring_leases(
                claimant, within=self._lease_ttl, until=self._until
            )
        except (TransportError, OperationTimeout):
            return False
        self._until = answer.until
        return answer.leases == 0 or time.monotonic() > self._at_the_latest
