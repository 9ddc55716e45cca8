"""Which request runs next when callers ask for more than the process can do at once.

A request weighs as much as the answers of its caller usually do. While little is at work there is
no rule. Beyond that, a caller that asks for little is served at once, and the requests of those
that ask for much run one at a time, one of each caller in turn, with pauses for the others: one
that floods the server waits for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, TypeAlias

BUSY: Final = 48.0
"""Weight at work in this process from which on callers that ask for much wait."""
LITTLE: Final = 8.0
"""Weight of the open requests of a caller that is served at once."""
MANY: Final = 4
"""Open requests of a caller from which on it is told of a refusal later."""
LATER: Final = 1.0
_MOST_LATER: Final = 2000
_BYTES: Final = 8 * 1024
"""Of an answer: as much work as a request without one."""
_PAUSE: Final = 3.0
"""How long nobody's turn is after a turn, in times of its length."""
_LONGEST: Final = 0.5
_LATELY: Final = 1.0
_KEPT: Final = 10_000


Waiting: TypeAlias = Callable[[Coroutine[Any, Any, None]], Awaitable[Any]]


async def _to_its_end(waiting: Coroutine[Any, Any, None]) -> None:
    await waiting


class _Caller:
    __slots__ = ("open", "seen_at", "waiting", "weight")

    def __init__(self) -> None:
        self.open, self.weight, self.seen_at = 0, 1.0, 0.0
        self.waiting: deque[asyncio.Future[None]] = deque()


class Turns:
    """The open requests of each caller; the requests that wait for their turn."""

    def __init__(self) -> None:
        self._callers: dict[str, _Caller] = {}
        self._at_work = 0.0
        self._told_later = 0
        self._in_turn: deque[_Caller] = deque()
        """Callers with requests that wait, each once; the next one is first."""
        self._is_taken = False
        """Is it somebody's turn, or a pause?"""

    def arrive(self, who: str, *, known: bool = True) -> None:
        """The caller has one more open request; `known`: a token says who it is."""
        caller = self._callers.get(who)
        if caller is None:
            if len(self._callers) >= _KEPT:
                self._callers = {each: found for each, found in self._callers.items() if found.open}
            caller = self._callers[who] = _Caller()
        caller.open += 1
        if known:
            caller.seen_at = time.monotonic()

    def leave(self, who: str, size: int = 0) -> None:
        """A request of the caller is answered, by so many bytes."""
        caller = self._callers[who]
        caller.open -= 1
        caller.weight += (1 + size / _BYTES - caller.weight) / 8

    @contextlib.contextmanager
    def apart(self, who: str) -> Generator[None]:
        """A request that waits for something does not count as open while the block runs."""
        caller = self._callers[who]
        caller.open -= 1
        try:
            yield
        finally:
            caller.open += 1

    @contextlib.asynccontextmanager
    async def turn(self, who: str, waiting: Waiting = _to_its_end) -> AsyncGenerator[None]:
        """The block runs when it is the turn of this request, which has arrived.

        `waiting` may give up a request whose client has left.
        """
        caller = self._callers[who]
        floods = caller.open * caller.weight > LITTLE
        if floods and (self._in_turn or self._at_work >= BUSY) and self._has_others(caller):
            await waiting(self._wait(caller))
            began = time.monotonic()
            try:
                yield
            finally:
                self._pause(time.monotonic() - began)
            return
        weight, self._at_work = caller.weight, self._at_work + caller.weight
        try:
            yield
        finally:
            self._at_work -= weight

    async def refuse(self, who: str) -> None:
        """Return when the caller may be told of a refusal: later, if it has many open requests.

        Who asks again at once would else keep the process busy with refusals.
        """
        if self._callers[who].open <= MANY or self._told_later >= _MOST_LATER:
            return
        self._told_later += 1
        try:
            await asyncio.sleep(LATER)
        finally:
            self._told_later -= 1

    def _has_others(self, caller: _Caller) -> bool:
        """Has anybody else asked for something lately?"""
        since = time.monotonic() - _LATELY
        return any(
            each is not caller and each.seen_at and (each.open or each.seen_at > since)
            for each in self._callers.values()
        )

    async def _wait(self, caller: _Caller) -> None:
        turn = asyncio.get_running_loop().create_future()
        if not caller.waiting:
            self._in_turn.append(caller)
        caller.waiting.append(turn)
        self._next()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._free()
            raise

    def _pause(self, seconds: float) -> None:
        pause = min(_LONGEST, seconds * _PAUSE)
        asyncio.get_running_loop().call_later(pause, self._free)

    def _free(self) -> None:
        self._is_taken = False
        self._next()

    def _next(self) -> None:
        while self._in_turn and not self._is_taken:
            caller = self._in_turn.popleft()
            turn = caller.waiting.popleft()
            if caller.waiting:
                self._in_turn.append(caller)
            if not turn.done():  # its client may have left
                self._is_taken = True
                turn.set_result(None)
