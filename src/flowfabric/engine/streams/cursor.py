"""Places in a stream: the ids of frames, and the texts by which callers name them."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from flowfabric.errors import invalid_input
from flowfabric.ids import check_is_text

START: Final = "start"
END: Final = "end"
BEGINNING: Final = "0-0"
"""The place before the first frame."""

_MAX_TS: Final = 2**63 - 1
_MAX_SEQ: Final = 2**31 - 1
_WRITTEN: Final = re.compile(r"(\d{1,19})(?:-(\d{1,10}))?", re.ASCII)
_RULE: Final = "must be <ms>-<seq> or <ms>, such as 1767225600000-0"


class FrameId(msgspec.Struct, frozen=True, order=True):
    """The id of a frame: when it was appended, and its number within that millisecond."""

    ms: int
    seq: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"


FIRST: Final = FrameId(0, 0)
LAST: Final = FrameId(_MAX_TS, _MAX_SEQ)


def lower_bound(text: str, *, field: str) -> FrameId:
    """The first id that a read from here may return; raises `ValidationError(invalid_input)`."""
    return {START: FIRST, END: LAST}.get(text) or _parsed(text, field, or_named=True)


def upper_bound(text: str, *, field: str) -> FrameId:
    """The last id that a read up to here may return: of a bare millisecond its last frame."""
    named = {START: FIRST, END: LAST}.get(text)
    return named or _parsed(text, field, or_named=True, seq=_MAX_SEQ)


def after(text: str, *, field: str = "after") -> FrameId:
    """The place that a tail goes on from; `start` and `end` are no places, `0-0` is the beginning.

    Raises `ValidationError(invalid_input)`.
    """
    if text in (START, END):
        raise invalid_input(field, text, f"{_RULE}; {BEGINNING} is the beginning")
    return _parsed(text, field)


def _parsed(text: str, field: str, *, or_named: bool = False, seq: int = 0) -> FrameId:
    """The id that the text is, with this `seq` if it has none; a refusal lists what is allowed."""
    found = _WRITTEN.fullmatch(check_is_text(text, field=field))
    if found is not None:
        place = FrameId(int(found[1]), seq if found[2] is None else int(found[2]))
        if place.ms <= _MAX_TS and place.seq <= _MAX_SEQ:
            return place
    raise invalid_input(field, text, f"{_RULE}; or {START} or {END}" if or_named else _RULE)
