"""A handler whose code no longer fits its journal: both sequences of calls side by side."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

import msgspec

_SAID: Final = re.compile(r"recorded: (.*); asked: (.*)", re.DOTALL)


class CallPair(msgspec.Struct, frozen=True, kw_only=True):
    """A call of the journal and the call that the handler made in its place; None for none."""

    recorded: str | None
    asked: str | None
    is_first: bool = False
    """Is it the first difference?"""

    @property
    def differs(self) -> bool:
        return self.recorded != self.asked


def divergence_of(messages: Iterable[str]) -> list[CallPair]:
    """The calls around the first difference; empty if no message tells of a divergence.

    A message is that of `NonDeterministicReplay`.
    """
    for message in messages:
        found = _SAID.search(message)
        if found is not None:
            return _aligned(_calls(found[1]), _calls(found[2]))
    return []


def _calls(text: str) -> list[str]:
    return [] if text == "none" else text.split(", ")


def _aligned(recorded: list[str], asked: list[str]) -> list[CallPair]:
    pairs: list[CallPair] = []
    matcher = difflib.SequenceMatcher(a=recorded, b=asked, autojunk=False)
    for _, a0, a1, b0, b1 in matcher.get_opcodes():
        for place in range(max(a1 - a0, b1 - b0)):
            left = recorded[a0 + place] if a0 + place < a1 else None
            right = asked[b0 + place] if b0 + place < b1 else None
            is_first = left != right and not any(each.differs for each in pairs)
            pairs.append(CallPair(recorded=left, asked=right, is_first=is_first))
    return pairs
