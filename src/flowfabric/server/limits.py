"""Limits of requests: how many at once and a second, and what a body may contain."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import time
from array import array
from collections import deque
from collections.abc import Generator
from itertools import accumulate
from typing import Any, Final, cast

import msgspec

from flowfabric.errors import ConfigError
from flowfabric.server.problems import RequestProblem, invalid

LIMITS: Final = "FF_LIMITS"
MAX_DEPTH: Final = 64
MAX_URL: Final = 8 * 1024
MAX_HEADERS: Final = 32 * 1024
A_MINUTE: Final = 60.0
MOST_CALLBACKS: Final = 20
"""Callbacks of one address in a minute."""
REFUSALS_A_SECOND: Final = 200
"""How many refusals of one token are answered in a second: the more wait, the longer they do."""
_LONGEST_REFUSAL: Final = 2.0
_MOST_REFUSED: Final = 5_000
_MOST_ADDRESSES: Final = 10_000
_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_STEPS: Final = bytes.maketrans(b"[]", b"\x01\xff")
_OTHERS: Final = bytes(each for each in range(256) if each not in b'[]{}"')
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_NUL: Final = "\x00"


class RequestLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one token may do in one process at a time."""

    requests: int = 64
    """Requests at work."""
    rate: float = 2000.0
    """Requests a second."""
    burst: float = 4000.0
    streams: int = 32
    waiters: int = 2000
    """Requests that wait, of all tokens together."""


def configured_limits() -> RequestLimits:
    """The limits of `FF_LIMITS`, such as `rate=500,streams=8`, else the defaults."""
    found: dict[str, str] = {}
    for part in filter(None, os.environ.get(LIMITS, "").split(",")):
        name, _, value = part.partition("=")
        found[name.strip()] = value.strip()
    try:
        return msgspec.convert(found, RequestLimits, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError("server", LIMITS, str(error)) from None


class TokenUse:
    """What one token has in use."""

    def __init__(self, limits: RequestLimits) -> None:
        self.requests = self.streams = 0
        self.refused = 0
        """Refusals that wait to be answered."""
        self._tokens, self._at = limits.burst, time.monotonic()

    def take(self, limits: RequestLimits) -> None:
        """Count a request; raises a `RequestProblem` if there were too many."""
        now = time.monotonic()
        self._tokens = min(limits.burst, self._tokens + (now - self._at) * limits.rate)
        self._at = now
        if self._tokens < 1:
            seconds = max(1, round((1 - self._tokens) / limits.rate))
            raise _too_many(f"more than {limits.rate:g} requests a second", seconds)
        self._tokens -= 1


class Meter:
    """Counts what each token uses, and refuses what exceeds its limits."""

    def __init__(self, limits: RequestLimits) -> None:
        self.limits = limits
        self.waiters = 0
        self.refused = self._held = 0
        self._uses: dict[str, TokenUse] = {}

    def begin(self, who: str, *, waits: bool) -> TokenUse:
        """One more request of this token, until `end`.

        Raises a `RequestProblem` if it is one too many.
        """
        use = self._uses.get(who)
        if use is None:
            use = self._uses[who] = TokenUse(self.limits)
        try:
            use.take(self.limits)
            if waits and self.waiters >= self.limits.waiters:
                raise _too_many(f"more than {self.limits.waiters} requests wait", 1)
            if not waits and use.requests >= self.limits.requests:
                raise _too_many(f"more than {self.limits.requests} requests at a time", 1)
        except RequestProblem:
            self.refused += 1
            raise
        if waits:
            self.waiters += 1
        else:
            use.requests += 1
        return use

    def end(self, use: TokenUse, *, waits: bool) -> None:
        """A request that has begun is over."""
        if waits:
            self.waiters -= 1
        else:
            use.requests -= 1

    async def hold_refusal(self, who: str, stopping: asyncio.Event) -> None:
        """Wait before a request of this token is told that it is one too many.

        A client that asks again at once would otherwise keep the server busy with refusals, which
        others feel. Few refusals wait some milliseconds, many up to 2 seconds.
        """
        use = self._uses.get(who)
        if use is None or self._held >= _MOST_REFUSED:
            return
        self._held += 1
        use.refused += 1
        try:
            async with asyncio.timeout(min(_LONGEST_REFUSAL, use.refused / REFUSALS_A_SECOND)):
                await stopping.wait()
        except TimeoutError:
            pass
        finally:
            use.refused -= 1
            self._held -= 1

    @contextlib.contextmanager
    def stream(self, who: str) -> Generator[None]:
        """One stream of this token; raises a `RequestProblem` if it is one too many."""
        use = self._uses.setdefault(who, TokenUse(self.limits))
        if use.streams >= self.limits.streams:
            self.refused += 1
            raise _too_many(f"more than {self.limits.streams} streams", 5)
        use.streams += 1
        try:
            yield
        finally:
            use.streams -= 1


class CallbackMeter:
    """When each address has called in the last minute."""

    def __init__(self) -> None:
        self._calls: dict[str, deque[float]] = {}

    def count(self, address: str) -> None:
        """One more call; raises a `RequestProblem` if it is one too many."""
        now = time.monotonic()
        if len(self._calls) >= _MOST_ADDRESSES:
            self._calls.clear()
        calls = self._calls.setdefault(address, deque())
        while calls and now - calls[0] > A_MINUTE:
            calls.popleft()
        if len(calls) >= MOST_CALLBACKS:
            seconds = round(A_MINUTE - (now - calls[0])) or 1
            raise _too_many(f"more than {MOST_CALLBACKS} callbacks a minute", seconds)
        calls.append(now)


def _too_many(detail: str, seconds: int) -> RequestProblem:
    return RequestProblem("too_many_requests", detail, headers={"retry-after": str(seconds)})


def check_depth(body: bytes) -> None:
    """Raise a `RequestProblem` for valid JSON that is nested deeper than `MAX_DEPTH`.

    No step is a loop of ours over the bytes: that would hold up all other requests.
    """
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    texts = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # every quote begins or ends a text
    found = texts.translate(_BRACKETS, _OTHERS).replace(b'""', b"")
    left = b"".join(found.split(b'"')[::2])
    shallow = left.replace(b"[]", b"").replace(b"[]", b"")  # without the two innermost levels
    if 2 + max(accumulate(array("b", shallow.translate(_STEPS))), default=0) > MAX_DEPTH:
        raise invalid("", f"nested deeper than {MAX_DEPTH} levels")


def check_surrogates(body: bytes) -> None:
    """Raise a `RequestProblem` for JSON in which a text has half of a surrogate pair."""
    if _SURROGATE.search(body) is None:
        return
    with contextlib.suppress(ValueError, RecursionError):
        _find_surrogate(json.loads(body), "")


def _find_surrogate(value: object, where: str) -> None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise invalid(where, "contains half of a surrogate pair") from None
    elif isinstance(value, list):
        for number, each in enumerate(cast("list[object]", value)):
            _find_surrogate(each, f"{where}[{number}]")
    elif isinstance(value, dict):
        for name, each in cast("dict[str, object]", value).items():
            _find_surrogate(name, where)
            _find_surrogate(each, f"{where}.{name}" if where else name)


def check_packed_texts(given: object, body: bytes) -> None:
    """As `check_texts`, of what a MessagePack body was decoded to.

    Nearly no body has a NUL in a text. That is found out without a look at each member: in JSON
    such a NUL is written as an escape, and nothing else is.
    """
    if b"\x00" not in body:
        return
    try:
        suspected = b"\\u0000" in msgspec.json.encode(given)
    except (TypeError, ValueError, RecursionError):  # JSON has not every key of MessagePack
        suspected = True
    if suspected:
        check_texts(given)


def check_texts(value: object, where: str = "") -> None:
    """Raise a `RequestProblem` for a text with a NUL, which Postgres cannot store."""
    match value:
        case str():
            if _NUL in value:
                raise invalid(where, "contains a NUL character")
        case msgspec.Struct():
            for name in value.__struct_fields__:
                check_texts(getattr(value, name), f"{where}.{name}" if where else name)
        case list() | tuple():
            for number, each in enumerate(cast("list[Any]", value)):
                check_texts(each, f"{where}[{number}]")
        case dict():
            for name, each in cast("dict[Any, Any]", value).items():
                check_texts(name, f"{where}.…")
                check_texts(each, f"{where}.{name}")
        case _:
            pass
