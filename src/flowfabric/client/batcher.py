"""Sends concurrent requests in batches: one gathers while the previous ones are in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from flowfabric.db.transaction import repeated
from flowfabric.errors import EngineError, StateError, ValidationError

N = TypeVar("N")
A = TypeVar("A")

_IN_FLIGHT: Final = 2


class Batcher(Generic[N, A]):
    """Takes requests one by one and sends them in batches; none waits for a full batch.

    Requests that come while batches are in flight go into the next batch, up to a total weight of
    `max_weight`.
    """

    def __init__(
        self,
        send: Callable[[Sequence[N]], Awaitable[Sequence[A | EngineError]]],
        *,
        max_weight: int,
        weight: Callable[[N], int] = lambda _: 1,
    ) -> None:
        self._send, self._max_weight, self._weight = send, max_weight, weight
        self._queue: list[tuple[N, asyncio.Future[A]]] = []
        self._senders: set[asyncio.Task[None]] = set()

    async def request(self, new: N) -> A:
        """The answer to one request; raises the error with which the request was refused."""
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._queue.append((new, answer))
        if len(self._senders) < _IN_FLIGHT:
            sender = asyncio.create_task(self._send_queued())
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)
        return await answer

    async def _send_queued(self) -> None:
        while self._queue:
            await self._send_batch(self._next_batch())

    def _next_batch(self) -> list[tuple[N, asyncio.Future[A]]]:
        """Remove from the queue as many requests as fit into one batch, at least one."""
        size, weight = 0, 0
        for new, _ in self._queue:
            weight += self._weight(new)
            if size and weight > self._max_weight:
                break
            size += 1
        batch, self._queue = self._queue[:size], self._queue[size:]
        return batch

    async def _send_batch(self, batch: list[tuple[N, asyncio.Future[A]]]) -> None:
        requests = [new for new, _ in batch]
        try:
            # The client makes the ids: a repeat after a lost answer finds its own rows.
            answers = await repeated(lambda: self._send(requests))
        except (ValidationError, StateError) as refusal:
            # One refused request refuses the batch: halve the batch until that request is alone.
            if len(batch) > 1:
                middle = len(batch) // 2
                await self._send_batch(batch[:middle])
                await self._send_batch(batch[middle:])
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
