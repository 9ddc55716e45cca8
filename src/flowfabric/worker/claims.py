"""The claims of a worker: what it asks for, and how it goes on when a claim fails."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import msgspec

from flowfabric.counters import CLAIM_BATCH_SIZE
from flowfabric.db.rows import Connection
from flowfabric.db.transaction import run
from flowfabric.engine.lifecycle.claim import Claimant, claim
from flowfabric.engine.lifecycle.sql.lease import Claimed
from flowfabric.errors import FlowFabricError, OperationTimeout, TransportError
from flowfabric.worker.running_attempt import HeldLeases, RunningAttempt
from flowfabric.worker.threads import HandlerThreads
from flowfabric.worker.unanswered_claims import UnansweredClaims

if TYPE_CHECKING:
    from flowfabric.remote.engine import RemoteEngine
    from flowfabric.remote.engine_like import EngineLike

log: Final = logging.getLogger("flowfabric.worker")


class Claims:
    """Claims executions until `stopping` is set; their leases are held from the claim on."""

    def __init__(
        self,
        claimant: Claimant,
        *,
        lease_ttl: float,
        held_leases: HeldLeases,
        unanswered: UnansweredClaims,
        threads: HandlerThreads,
        stopping: asyncio.Event,
    ) -> None:
        self._claimant, self._lease_ttl = claimant, lease_ttl
        self._held_leases, self._unanswered = held_leases, unanswered
        self._threads, self._stopping = threads, stopping
        self.seconds = 0.01
        """How long a claim takes, on average."""

    def claimant(self) -> Claimant:
        """The worker with the kinds that it can run now: not those whose threads are stuck."""
        claimant, exhausted = self._claimant, self._threads.exhausted
        if not exhausted or claimant.kinds is None:
            return claimant
        kinds = tuple(kind for kind in claimant.kinds if kind not in exhausted)
        return msgspec.structs.replace(claimant, kinds=kinds)

    async def claim(
        self, engine: EngineLike, limit: int, *, wait: float = 0.0
    ) -> list[RunningAttempt]:
        """Claim up to `limit` executions; while the database is in trouble, log and try again.

        A server is asked to wait for so many seconds until there is something.
        """
        pause = 0.1
        while not self._stopping.is_set():
            claimant = self.claimant()
            if claimant.kinds == ():
                return []
            call = _Call(claimant, self._lease_ttl, limit)
            try:
                if engine.is_remote is True:
                    claimed = await call.ask(engine, wait)
                else:
                    claimed = await run(engine.pool, "claim", call.send)
            except asyncio.CancelledError:
                self._note_unanswered(call, given_up=engine.is_remote)
                raise
            except FlowFabricError as error:
                if isinstance(error, TransportError | OperationTimeout):
                    self._note_unanswered(call)
                log.warning(
                    "worker %s cannot claim: %s",
                    claimant.worker_instance_id,
                    error,
                    extra={"instance_id": claimant.worker_instance_id, "error": str(error)},
                )
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(random.uniform(0, pause)):
                        await self._stopping.wait()
                pause = min(pause * 2, 10.0)
                continue
            answered_at = time.monotonic()
            CLAIM_BATCH_SIZE.observe(len(claimed))
            self.seconds += 0.2 * (answered_at - call.begun_at - self.seconds)
            attempts = [RunningAttempt(each, call.begun_at, answered_at) for each in claimed]
            for attempt in attempts:
                self._held_leases.add(attempt)
            return attempts
        return []

    def _note_unanswered(self, call: _Call, *, given_up: bool = False) -> None:
        """Ask later what the claim got. A server hands back what a claim got that was given up.

        Then to ask once is enough: for an answer that was on its way.
        """
        if call.is_sent:
            self._unanswered.add(call.lease_id, -math.inf if given_up else call.sent_at)


class _Call:
    """One claim, and when it was sent: not before there was a connection.

    A lease may begin as soon as its claim is sent. While the database is away a call waits for a
    connection, possibly for longer than a lease lasts.
    """

    def __init__(self, claimant: Claimant, ttl: float, limit: int) -> None:
        self._claimant, self._ttl, self._limit = claimant, ttl, limit
        self.lease_id = uuid4()
        self.sent_at = 0.0
        self.begun_at = 0.0
        """Leases of this claim did not begin before."""

    @property
    def is_sent(self) -> bool:
        return self.sent_at > 0.0

    async def send(self, conn: Connection) -> list[Claimed]:
        self.sent_at = self.begun_at = time.monotonic()
        return await claim(
            conn, self._claimant, ttl=self._ttl, limit=self._limit, lease_id=self.lease_id
        )

    async def ask(self, engine: RemoteEngine, wait: float) -> list[Claimed]:
        """Claim at a server, which waits for something to claim."""
        self.sent_at = time.monotonic()
        answer = await engine.claim_within(
            self._claimant, ttl=self._ttl, limit=self._limit, lease_id=self.lease_id, wait=wait
        )
        self.begun_at = self.sent_at + answer.waited
        return answer.claimed
