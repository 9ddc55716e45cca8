"""Payloads, the counting of handler calls, and the arithmetic of figures.

It needs only the standard library, because every adapter imports it under its own interpreter.
"""

import asyncio
import json
import time
from typing import Any, Final

SHORT: Final = 60

Figures = dict[str, float]


class Payload:
    """What pads the arguments: 60 bytes unless the command line says otherwise."""

    padding = "x" * SHORT


def arguments(i: int, at: float = 0.0) -> dict[str, Any]:
    """The handler's arguments: about 100 bytes of JSON, with the moment of the submit call."""
    return {"i": i, "at": at, "pad": Payload.padding}


def encoded(i: int, at: float = 0.0) -> bytes:
    """The same arguments as JSON text, for systems that take bytes."""
    return json.dumps(arguments(i, at)).encode()


class Meter:
    """Counts the handler calls of one worker process.

    A handler awaits `rest()`: it ends the call at once, or after the time that the scenario says.
    With a `window` the delays from submit to start are kept by window of so many seconds.
    """

    def __init__(self, stop_after: int, *, handler: float = 0.0, window: float = 0.0) -> None:
        self.handler = handler
        self.window = window
        self.windows: dict[int, list[float]] = {}
        self.first = 0.0
        self.calls = 0
        self.errors = 0
        self.delays: list[float] = []
        self.since_claim: list[float] = []
        self.last = 0.0
        self.reads = 0
        self.statements = 0
        self._stop_after = stop_after

    def seen(self, at: float) -> None:
        """Count one handler call; `at` is the moment of its submit call, or 0."""
        if not self.calls:
            self.first = time.time()
        self.calls += 1
        if at and self.window:
            delay = time.monotonic() - at
            self.windows.setdefault(int(at // self.window), []).append(delay)
        elif at:
            self.delays.append(time.monotonic() - at)
        if self.calls == self._stop_after:
            print("reached", flush=True)

    async def rest(self) -> None:
        """Pass the time that a handler takes."""
        if self.handler:
            await asyncio.sleep(self.handler)

    def figures(self) -> dict[str, Any]:
        """The counts as the parent process reads them."""
        return {
            "first": self.first,
            "calls": self.calls,
            "errors": self.errors,
            "delays": self.delays,
            "since_claim": self.since_claim,
            "reads": self.reads,
            "windows": {
                str(number): milliseconds(delays) for number, delays in self.windows.items()
            },
        }


def rate(n: int, seconds: float) -> Figures:
    """`n` per second."""
    return {"rate": n / seconds, "n": float(n), "seconds": seconds}


def milliseconds(seconds: list[float]) -> Figures:
    """The percentiles of some durations, in milliseconds."""
    ordered = sorted(1000 * each for each in seconds)
    return {
        "p50": percentile(ordered, 50),
        "p95": percentile(ordered, 95),
        "p99": percentile(ordered, 99),
        "samples": float(len(ordered)),
    }


def percentile(ordered: list[float], percent: int) -> float:
    """The value below which `percent` of the ordered values lie (nearest rank)."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
