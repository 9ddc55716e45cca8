"""Waits for outcomes: one query serves everything that a client waits for."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from flowfabric.db.waiter import Waiter
from flowfabric.errors import FlowFabricError, Unavailable

if TYPE_CHECKING:
    from flowfabric.remote.engine_like import EngineLike
    from flowfabric.remote.long_poll import LongPoll

log: Final = logging.getLogger("flowfabric.client")
TOPIC: Final = "completion"
_POLL_LISTENING: Final = 2.0
_GATHER: Final = 0.002

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class OutcomeWaiter(Generic[K, V]):
    """Resolves a future for each execution, or flow, that is waited for, when it has ended.

    `read` answers the outcomes of those that have ended. It is called after a notification that
    executions have ended, and from time to time without one.
    """

    def __init__(
        self,
        engine: EngineLike,
        read: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]],
        *,
        rest: float = 0.0,
    ) -> None:
        """After a query that found nothing, the next one waits `rest` times its duration."""
        self._read, self._rest = read, rest
        self._waiter = _waiter(engine, lambda: list(self._futures))
        self._futures: defaultdict[K, set[asyncio.Future[V]]] = defaultdict(set)
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def wait(self, key: K) -> V:
        """The outcome of the execution, or flow, once it has ended; `Unavailable` when closed."""
        if self._closed:
            raise _closed()
        future: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        self._futures[key].add(future)
        self._waiter.found()  # what begins now may end soon, however long others have taken
        self._waiter.wake()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="flowfabric outcomes")
        try:
            return await future
        finally:
            futures = self._futures.get(key)
            if futures is not None:
                futures.discard(future)
                if not futures:
                    del self._futures[key]

    async def close(self) -> None:
        """Stop querying, and remove the registration as a waiter; calls that wait get an error."""
        self._closed = True
        for future in [each for waiting in self._futures.values() for each in waiting]:
            if not future.done():
                future.set_exception(_closed())
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=2.0)
        await self._waiter.close()

    async def _watch(self) -> None:
        while self._futures:
            self._waiter.looking()
            began = time.monotonic()
            try:
                found = await self._resolve()
            except FlowFabricError as error:
                log.warning("cannot read %s outcomes: %s", len(self._futures), error)
                await self._waiter.pause()
                continue
            if found:
                self._waiter.found()
                continue
            took = time.monotonic() - began
            await self._waiter.wait()
            if self._rest:
                await asyncio.sleep(self._rest * took)

    async def _resolve(self) -> bool:
        """Resolve the futures of what has ended; False if nothing has."""
        outcomes = await self._read(list(self._futures))
        for key, outcome in outcomes.items():
            for future in tuple(self._futures.get(key, ())):
                if not future.done():
                    future.set_result(outcome)
            self._futures.pop(key, None)
        return bool(outcomes)


def _waiter(engine: EngineLike, pending: Callable[[], Sequence[Hashable]]) -> Waiter | LongPoll:
    """Tells when executions have ended; a server is asked about those that are pending."""
    if engine.is_remote is True:
        return engine.outcome_waiter(pending)
    return Waiter(
        engine.pool,
        engine.listener,
        [TOPIC],
        name="client",
        poll=_POLL_LISTENING,
        gather=_GATHER,
    )


def _closed() -> Unavailable:
    return Unavailable("result", "the client is closed; connect another one and wait again")
