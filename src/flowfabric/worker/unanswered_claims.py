"""Claims of a worker that got no answer, and what they turn out to have leased.

The connection broke, or the worker stopped waiting: then the claim may have been committed, and the
worker holds executions that it does not know. It knows the lease id that it made for the call, and
asks what that lease holds.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

from flowfabric.errors import FlowFabricError
from flowfabric.worker.running_attempt import HeldLeases, RunningAttempt

if TYPE_CHECKING:
    from flowfabric.remote.engine_like import EngineLike

log: Final = logging.getLogger("flowfabric.worker")
_FIRST_PAUSE: Final = 0.05
_LAST_PAUSE: Final = 1.0
_STOP_WITHIN: Final = 2.0

Found: TypeAlias = Callable[[list[RunningAttempt]], None]
"""Is given the attempts that were found."""


class UnansweredClaims:
    """Asks what they got, and passes the attempts on; their leases are held from then on."""

    def __init__(
        self, instance: str, held_leases: HeldLeases, *, lease_ttl: float, running_for: float
    ) -> None:
        """A claim may be committed up to `running_for` seconds after it was sent."""
        self._instance, self._held_leases = instance, held_leases
        self._lease_ttl, self._running_for = lease_ttl, running_for
        self._sent_at: dict[UUID, float] = {}
        self._some = asyncio.Event()

    def add(self, lease_id: UUID, sent_at: float) -> None:
        """The claim with this lease id was sent then, and got no answer."""
        self._sent_at[lease_id] = sent_at
        self._some.set()

    async def run(self, engine: EngineLike, found: Found) -> None:
        """Ask until each claim is found, or cannot be committed any more; runs until cancelled."""
        while True:
            await self._some.wait()
            pause = _FIRST_PAUSE
            while self._sent_at:
                try:
                    await self._ask(engine, found)
                except FlowFabricError as error:
                    log.warning("cannot ask what a claim without an answer got: %s", error)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _LAST_PAUSE)
            self._some.clear()

    async def stop(self, engine: EngineLike, found: Found) -> None:
        """Ask for the last time, within two seconds; what is not found expires with its lease."""
        try:
            async with asyncio.timeout(_STOP_WITHIN):
                while self._sent_at:
                    await self._ask(engine, found)
                    if max(self._sent_at.values(), default=0.0) < time.monotonic() - _STOP_WITHIN:
                        return
                    await asyncio.sleep(_FIRST_PAUSE)
        except (FlowFabricError, TimeoutError) as error:
            reason = str(error) or f"no answer within {_STOP_WITHIN:g} s"
            log.warning("what a claim without an answer got stays leased: %s", reason)

    async def _ask(self, engine: EngineLike, found: Found) -> None:
        """Look once for what the claims got, and pass it to `found`."""
        asked_at = time.monotonic()
        asked = dict(self._sent_at)
        answer = await engine.read_claimed(tuple(asked), worker_instance_id=self._instance)
        # Counted from before the question: not later than the lease really expires.
        took = time.monotonic() - asked_at
        began = asked_at - self._lease_ttl
        attempts = [
            RunningAttempt(
                each, began + each.lease_expires_in, began + each.lease_expires_in + took
            )
            for each in answer
            if each.lease.lease_id in self._sent_at
        ]
        for lease_id, sent_at in asked.items():
            if asked_at - sent_at > self._running_for:
                self._sent_at.pop(lease_id, None)
        for attempt in attempts:
            self._sent_at.pop(attempt.lease.lease_id, None)
            self._held_leases.add(attempt)
        if attempts:
            log.warning("found %s executions of a claim without an answer", len(attempts))
            found(attempts)
