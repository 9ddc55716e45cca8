"""When a worker that runs until it is idle may stop."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import TYPE_CHECKING, Final

from flowfabric.db.faults import is_trouble
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.errors import FlowFabricError
from flowfabric.worker.maintenance import make_due_claimable
from flowfabric.worker.passed_over import PassedOver

if TYPE_CHECKING:
    from flowfabric.remote.engine_like import EngineLike

SWEPT_WITHIN: Final = 5.0
"""Seconds after the expiry of a lease within which a sweep makes the execution claimable."""
_MOMENT: Final = 0.02


class Idleness:
    """Nothing is claimable or due, locked or not, and no execution of a dead worker is about to be.

    An execution is waited for if its lease expires within one lease TTL after the worker ran out of
    work. A holder that lives renews the lease beyond that, so its work is not waited for. After the
    TTL and the time of a sweep nothing is waited for.
    """

    def __init__(self, lease_ttl: float, *, sweeps: bool) -> None:
        """With `sweeps` executions that are due are made claimable first."""
        self._lease_ttl, self._sweeps = lease_ttl, sweeps
        self._until: datetime | None = None
        self._at_the_latest: float | None = None
        self._swept = False
        self._passed_over = PassedOver()

    def busy(self) -> None:
        """The worker has claimed something: what is waited for is decided anew afterwards."""
        self._until = self._at_the_latest = None
        self._swept = False

    async def wakes(self, engine: EngineLike) -> bool:
        """Make claimable what is due; True if the worker has to claim once more after that."""
        if self._swept or not self._sweeps:
            return False
        try:
            more = await make_due_claimable(engine)
        except FlowFabricError as error:
            if not is_trouble(error):
                raise
            return False
        if more:  # another process sweeps just now
            await asyncio.sleep(_MOMENT)
        self._swept = not more
        return True

    async def reached(self, engine: EngineLike, claimant: Claimant) -> bool:
        """The worker has nothing to do; may it stop? False while the database does not answer."""
        if self._at_the_latest is None:
            self._at_the_latest = time.monotonic() + self._lease_ttl + SWEPT_WITHIN
        try:
            answer = await engine.count_expiring_leases(
                claimant, within=self._lease_ttl, until=self._until
            )
        except FlowFabricError as error:
            if not is_trouble(error):
                raise
            return False
        self._until = answer.until
        if time.monotonic() > self._at_the_latest:
            return True
        return answer.leases == 0 and not await self._passed_over.look(engine, claimant)
