"""User text in a drawing: escaped, cut to its room, without characters that a reader cannot see."""

from __future__ import annotations

import re
from html import escape
from typing import Final
from unicodedata import east_asian_width

# What XML does not allow, and what turns the direction of the text around it.
_UNSEEN: Final = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]"
)
_PLAIN: Final = re.compile(r"[ \w.:/,{}+-]*", re.ASCII)
"""Texts that are the same in markup: nearly all names and addresses."""
_WIDE: Final = "WF"


def text(value: str) -> str:
    """The text as content or attribute of an element."""
    if _PLAIN.fullmatch(value):
        return value
    return escape(_UNSEEN.sub("\ufffd", value))


def cut(value: str, room: int) -> str:
    """The text, with an ellipsis at its end if it is wider than `room` letters."""
    value = " ".join(value.split()) if len(value) < 1_000 else " ".join(value[:1_000].split())
    if len(value) <= room // 2 or (value.isascii() and len(value) <= room):
        return value
    used = 0
    for index, letter in enumerate(value):
        used += 2 if east_asian_width(letter) in _WIDE else 1
        if used > room or (used == room and index + 1 < len(value)):
            return value[:index] + "…"
    return value


def counted(number: int) -> str:
    """A number with separators: `12,345`."""
    return f"{number:,}"
