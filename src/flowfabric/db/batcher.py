"""Sends concurrent requests in batches: one gathers while the previous ones are in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, repeat
from typing import Final, Generic, TypeVar

from flowfabric.db.transaction import repeated
from flowfabric.errors import EngineError, StateError, ValidationError

N = TypeVar("N")
A = TypeVar("A")

_IN_FLIGHT: Final = 2
_MANY: Final = 64
"""So many requests are sent in two batches, if that is asked for."""


class Batcher(Generic[N, A]):
    """Takes requests one by one and sends them in batches; none waits for a full batch.

    Requests that come while `in_flight` batches are on their way go into the next batch, up to a
    total weight of `max_weight`. `first_send` is for requests that were never sent before; without
    it, `send` is for all.

    With `halves`, a batch that begins while nothing is in flight has half of the requests if they
    are many. Callers that make their next request when they have the answer would all wait for one
    batch otherwise, and the server for all callers.
    """

    def __init__(
        self,
        send: Callable[[Sequence[N]], Awaitable[Sequence[A | EngineError]]],
        *,
        first_send: Callable[[Sequence[N]], Awaitable[Sequence[A | EngineError]]] | None = None,
        max_weight: int,
        weight: Callable[[N], int] = lambda _: 1,
        in_flight: int = _IN_FLIGHT,
        halves: bool = False,
    ) -> None:
        self._send, self._first_send = send, first_send or send
        self._max_weight, self._weight, self._in_flight = max_weight, weight, in_flight
        self._halves = halves
        self._queue: list[tuple[N, asyncio.Future[A]]] = []
        self._senders: set[asyncio.Task[None]] = set()

    async def request(self, new: N) -> A:
        """The answer to one request; raises the error with which the request was refused."""
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._queue.append((new, answer))
        if len(self._senders) < self._in_flight:
            self._senders.add(asyncio.create_task(self._send_queued()))
        return await answer

    async def _send_queued(self) -> None:
        sender = asyncio.current_task()
        assert sender is not None
        most = self._max_weight
        if self._halves and len(self._queue) >= _MANY:
            most = min(most, sum(self._weight(new) for new, _ in self._queue) // 2)
        try:
            while self._queue:
                await self._send_batch(self._next_batch(most))
                most = self._max_weight
        finally:
            # At once, and not when the loop has noticed the end of the task: a request that is made
            # in between must not count on this sender.
            self._senders.discard(sender)

    def _next_batch(self, most: int) -> list[tuple[N, asyncio.Future[A]]]:
        """Remove from the queue requests of this weight at most, but at least one."""
        size, weight = 0, 0
        for new, _ in self._queue:
            weight += self._weight(new)
            if size and weight > most:
                break
            size += 1
        batch, self._queue = self._queue[:size], self._queue[size:]
        return batch

    async def _send_batch(
        self, batch: list[tuple[N, asyncio.Future[A]]], *, first: bool = True
    ) -> None:
        requests = [new for new, _ in batch]
        sends = chain([self._first_send] if first else [], repeat(self._send))
        try:
            # The client makes the ids: a repeat after a lost answer finds its own rows.
            answers = await repeated(lambda: next(sends)(requests))
        except (ValidationError, StateError) as refusal:
            # One refused request refuses the batch: halve the batch until that request is alone.
            if len(batch) > 1:
                middle = len(batch) // 2
                # An earlier try of the batch, whose answer was lost, may still be running.
                await self._send_batch(batch[:middle], first=False)
                await self._send_batch(batch[middle:], first=False)
                return
            answers = [refusal]
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, EngineError):
                future.set_exception(answer)
            else:
                future.set_result(answer)
