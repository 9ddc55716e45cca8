"""What clients asked and were told, in one order of calls and returns."""

from __future__ import annotations

import itertools
from collections import defaultdict

import msgspec

Answer = tuple[object, ...]


class Held(msgspec.Struct, frozen=True):
    """The lease that a claim was told of."""

    claim: int
    attempt: int
    epoch: int


class Op(msgspec.Struct, kw_only=True):
    """One call; `answer` is None where nobody knows whether it happened."""

    number: int
    name: str
    called: int
    held: Held | None = None
    returned: int | None = None
    answer: Answer | None = None
    void: bool = False
    """It certainly did not happen."""
    contended: bool = False
    """Another call that may lock the execution was on its way at the same time."""

    def before(self, other: Op) -> bool:
        return self.returned is not None and self.returned < other.called

    def __str__(self) -> str:
        lease = f"({self.held.claim}@{self.held.epoch})" if self.held else ""
        told = "unknown" if self.answer is None else " ".join(map(str, self.answer))
        return f"{self.called}-{self.returned or '?'} #{self.number} {self.name}{lease} -> {told}"


class Log:
    """The calls of a run, by execution."""

    def __init__(self) -> None:
        self._clock, self._numbers = itertools.count(1), itertools.count(1)
        self.of: defaultdict[object, list[Op]] = defaultdict(list)

    def invoke(self, key: object, name: str, held: Held | None = None) -> Op:
        op = Op(number=next(self._numbers), name=name, called=next(self._clock), held=held)
        self.of[key].append(op)
        return op

    def told(self, op: Op, answer: Answer) -> None:
        op.answer, op.returned = answer, next(self._clock)

    def refused(self, op: Op) -> None:
        """The engine gave up before anything was written."""
        op.void, op.returned = True, next(self._clock)

    @property
    def size(self) -> int:
        return sum(map(len, self.of.values()))

    def count(self, *, unknown: bool) -> int:
        """How many calls had no answer, or were void."""
        return sum(
            (op.answer is None and not op.void) if unknown else op.void
            for ops in self.of.values()
            for op in ops
        )
