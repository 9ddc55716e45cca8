"""What the requests of one process share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

from flowfabric.client.flow_waiter import FlowWaiter, flow_waiter
from flowfabric.client.outcome_waiter import OutcomeWaiter
from flowfabric.db import boot
from flowfabric.db.batcher import Batcher
from flowfabric.db.waiter import Waiter
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.read_outcomes import ExecutionOutcome
from flowfabric.engine.lifecycle.create_execution import Created, Duplicate, NewExecution
from flowfabric.errors import FlowFabricError, Unavailable
from flowfabric.ids import ExecutionId
from flowfabric.metrics import DatabaseGauges, SharedCounters
from flowfabric.server.access.authenticate import Authenticator
from flowfabric.server.asgi import cancel_all
from flowfabric.server.limits import CallbackMeter, Meter, configured_limits
from flowfabric.server.plain_claims import PlainClaims
from flowfabric.server.settings import Settings
from flowfabric.states import DerivedFlowState

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_PER_STATEMENT: Final = 500
_GATHER_FOR: Final = 0.004
"""Seconds that a statement waits for other clients at most: about as long as it takes itself."""
_POLL: Final = 2.0
_IDLE_WAITERS: Final = 256


class Services:
    """The engine, and what waits and gathers on its behalf."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine, self.settings = engine, settings
        self.meter = Meter(configured_limits())
        self.authenticator = Authenticator(engine, settings)
        self.callbacks = CallbackMeter()
        self.plain_claims = PlainClaims()
        self.draining = asyncio.Event()
        """Set when the server stops: streams end, and waits answer at once."""
        self.stopping = False
        """No new requests are wanted."""
        self.gauges = DatabaseGauges(engine)
        self.shared_counters: SharedCounters | None = None
        self.sweeps_seen: Callable[[], bool] | None = None
        """Did the sweeps of this process look lately for what is due? None if it has none."""
        # Callers may give the same id again, so no statement may rely on new ids.
        self._submits: Batcher[NewExecution, Created | Duplicate] = Batcher(
            engine.create_execution, max_weight=_PER_STATEMENT, gather_for=_GATHER_FOR
        )
        self._minted: Batcher[NewExecution, Created | Duplicate] = Batcher(
            engine.create_execution,
            first_send=partial(engine.create_execution, fresh=True),
            max_weight=_PER_STATEMENT,
            gather_for=_GATHER_FOR,
        )
        self._outcomes: OutcomeWaiter[ExecutionId, ExecutionOutcome] | None = None
        self._flows: FlowWaiter | None = None
        self._idle: list[tuple[tuple[str, ...], Waiter]] = []
        """Waiters that no request uses, with their topics; the one unused the longest is first."""

    async def close(self) -> None:
        """Nothing waits any more; the engine stays open."""
        self.draining.set()
        idle, self._idle = [waiter for _, waiter in self._idle], []
        for waiter in (self._outcomes, self._flows, *idle):
            if waiter is not None:
                await waiter.close()

    async def failing(self) -> list[str]:
        """What keeps this process from serving; empty if nothing does."""
        found: list[str] = []
        if self.stopping or self.draining.is_set():
            found.append("draining")
        try:
            kids = await self.engine.list_waitpoint_hmac_kids()
            if kids.current_kid is None:
                found.append("keys")
            async with self.engine.pool.connection() as conn:
                await boot.check(conn, self.engine.pool.config.partitions)
        except Unavailable as error:
            found.append("schema" if error.operation == "schema_version" else "database")
        except FlowFabricError:
            found.append("database")
        listener = self.engine.listener
        if listener.is_started and not listener.connected.is_set():
            found.append("listener")
        if self.sweeps_seen is not None and not self.sweeps_seen():
            found.append("sweeps")
        return found

    async def submit(self, new: NewExecution, *, minted: bool) -> Created | Duplicate:
        """Create one execution, in one statement with those that are submitted meanwhile.

        `minted`: its id was made for this request.
        """
        return await (self._minted if minted else self._submits).request(new)

    async def first_outcomes(
        self, executions: Sequence[ExecutionId], seconds: float
    ) -> list[ExecutionOutcome]:
        """The outcomes of those that have ended: as soon as there is one, or after `seconds`."""
        found = await self.engine.read_outcomes(executions)
        if found or seconds <= 0 or self.draining.is_set() or not executions:
            return list(found.values())
        if self._outcomes is None:
            self._outcomes = OutcomeWaiter(self.engine, self.engine.read_outcomes)
        return list((await self._first(self._outcomes, executions, seconds)).values())

    async def first_flow_outcomes(
        self, flows: Sequence[UUID], seconds: float, namespaces: Sequence[str] | None
    ) -> dict[UUID, DerivedFlowState | None]:
        """The outcomes of those that exist in the namespaces: as soon as one has ended or is gone.

        None: in any namespace.
        """
        found = await self.engine.read_flow_outcomes(flows, namespaces=namespaces)
        settled = any(each not in found or found[each] is not None for each in flows)
        if settled or seconds <= 0 or self.draining.is_set():
            return found
        if self._flows is None:
            self._flows = flow_waiter(self.engine)
        await self._first(self._flows, flows, seconds)
        return await self.engine.read_flow_outcomes(flows, namespaces=namespaces)

    async def _first(
        self, waiter: OutcomeWaiter[K, V], wanted: Sequence[K], seconds: float
    ) -> dict[K, V]:
        waits = {each: asyncio.create_task(waiter.wait(each)) for each in wanted}
        draining = asyncio.create_task(self.draining.wait())
        try:
            await asyncio.wait(
                (*waits.values(), draining), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            done = {key: each for key, each in waits.items() if each.done()}
            return {key: each.result() for key, each in done.items() if not each.exception()}
        finally:
            await cancel_all([*waits.values(), draining])

    @contextlib.asynccontextmanager
    async def waiter(self, topics: Sequence[str]) -> AsyncGenerator[Waiter]:
        """Tells when one of the topics may have changed.

        A waiter stays registered for a while after its request: what changes between two requests
        of one worker is then notified, and the next request finds the signal.
        """
        wanted = tuple(topics)
        found = self._idle_waiter(wanted)
        try:
            yield found
        finally:
            self._idle.append((wanted, found))
            if self.draining.is_set() or len(self._idle) > _IDLE_WAITERS:
                await self._idle.pop(0)[1].close()

    def _idle_waiter(self, wanted: tuple[str, ...]) -> Waiter:
        for number, (topics, waiter) in enumerate(self._idle):
            if topics == wanted:
                del self._idle[number]
                return waiter
        engine = self.engine
        return Waiter(engine.pool, engine.listener, wanted, name="server", poll=_POLL)

    async def unless_draining(self, waiting: Coroutine[Any, Any, V]) -> V | None:
        """What was waited for; None if the server stops before."""
        task = asyncio.create_task(waiting)
        draining = asyncio.create_task(self.draining.wait())
        try:
            await asyncio.wait((task, draining), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            await cancel_all([task, draining])

    async def pause(self, waiter: Waiter, seconds: float) -> bool:
        """Return when the waiter says so, after `seconds`, or when the server stops.

        True if the waiter was notified.
        """
        waiting = asyncio.create_task(waiter.wait())
        draining = asyncio.create_task(self.draining.wait())
        try:
            await asyncio.wait(
                (waiting, draining), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            return waiting.done() and waiting.result()
        finally:
            await cancel_all([waiting, draining])
