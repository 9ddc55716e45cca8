"""Sends concurrent requests in batches: one gathers while the previous ones are in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import chain, islice, repeat
from typing import Final, Generic, TypeVar

from flowfabric.db.transaction import repeated
from flowfabric.errors import EngineError, StateError, ValidationError

N = TypeVar("N")
A = TypeVar("A")

_IN_FLIGHT: Final = 2
_MANY: Final = 128
"""So many callers are answered in two halves, if that is asked for."""
_IN_A_TURN: Final = 32
"""How many of them get their answers in one turn of the event loop."""
_TURNS: Final = 6
_FOR: Final = 0.002
"""How many turns, and seconds, fewer callers have to make their next requests."""


class Batcher(Generic[N, A]):
    """Takes requests one by one and sends them in batches; none waits for a full batch.

    Requests that come while `in_flight` batches are on their way go into the next batch, up to a
    total weight of `max_weight`. `first_send` is for requests that were never sent before; without
    it, `send` is for all.

    `halves` is for callers that make their next request when they have the answer. Many of them are
    answered in two halves, so that one half works while the server does; otherwise all callers
    would wait for one batch, and then the server for all callers. Few of them travel together.

    `gather_for` is for callers whose requests come over a network, one after the other: a batch
    waits so many seconds for half of those that were here with the batches before. A caller that
    was alone never waits.
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
        gather_for: float = 0.0,
    ) -> None:
        self._send, self._first_send = send, first_send or send
        self._max_weight, self._weight, self._in_flight = max_weight, weight, in_flight
        self._halves, self._gather_for = halves, gather_for
        self._sent = self._callers = 0
        """Requests on their way, and how many callers there seem to be."""
        self._wanted: tuple[int, asyncio.Event] | None = None
        """How many requests a batch waits for, and the event that they are here."""
        self._queue: list[tuple[N, asyncio.Future[A]]] = []
        self._senders: set[asyncio.Task[None]] = set()

    def request(self, new: N) -> asyncio.Future[A]:
        """The answer to one request, or the error with which the request was refused."""
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._queue.append((new, answer))
        if self._wanted is not None:
            count, are_here = self._wanted
            if len(self._queue) >= count:
                are_here.set()
        elif len(self._senders) < self._in_flight:
            self._senders.add(asyncio.create_task(self._send_queued()))
        return answer

    async def _send_queued(self) -> None:
        sender = asyncio.current_task()
        assert sender is not None
        answered = 0
        try:
            while self._queue and self._wanted is None:  # else another sender takes them
                if self._gather_for:
                    await self._until_half_are_here()
                batch = self._next_batch(answered)
                answered = len(batch)
                self._sent += answered
                await self._send_batch(batch)
                self._callers = max(self._callers, self._sent + len(self._queue))
                self._sent -= answered
                if self._halves:
                    await self._until_few_are_back(answered + len(self._queue))
        finally:
            # At once, and not when the loop has noticed the end of the task: a request that is made
            # in between must not count on this sender.
            self._senders.discard(sender)

    async def _until_half_are_here(self) -> None:
        """Wait for half of the callers; if they do not come, fewer are expected from now on."""
        half = (self._callers + 1) // 2
        if len(self._queue) >= half:
            return
        are_here = asyncio.Event()
        self._wanted = half, are_here
        try:
            async with asyncio.timeout(self._gather_for):
                await are_here.wait()
        except TimeoutError:
            self._callers = len(self._queue) + self._sent
        finally:
            self._wanted = None

    async def _until_few_are_back(self, callers: int) -> None:
        """Give few callers some turns of the event loop, if short, to make their next requests."""
        clock = asyncio.get_running_loop().time
        until = clock() + _FOR
        for _ in range(_TURNS if callers < _MANY else 0):
            if len(self._queue) >= callers or clock() > until:
                return
            await asyncio.sleep(0)

    def _next_batch(self, answered: int) -> list[tuple[N, asyncio.Future[A]]]:
        """Remove the next requests from the queue; so many callers were just answered."""
        most = len(self._queue)
        if self._halves and most + answered >= _MANY:
            most = min(most, (most + answered + 1) // 2)
        size, weight = 0, 0
        for new, _ in self._queue[:most]:
            weight += self._weight(new)
            if size and weight > self._max_weight:
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
        self._hand_out(zip([future for _, future in batch], answers, strict=True))

    def _hand_out(self, answered: Iterator[tuple[asyncio.Future[A], A | EngineError]]) -> None:
        """Give callers their answers, some in each turn of the event loop.

        What many callers do next would keep the loop from the answer to the next batch.
        """
        some = list(islice(answered, _IN_A_TURN))
        for future, answer in some:
            if future.done():
                continue
            if isinstance(answer, EngineError):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        if len(some) == _IN_A_TURN:
            asyncio.get_running_loop().call_soon(self._hand_out, answered)
