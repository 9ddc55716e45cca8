"""Stored JSON, formatted part by part: big integers, order and repeated keys stay as stored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

SHOWN: Final = 64 * 1024
"""Bytes that a page shows without being asked for all."""
MOST: Final = 1024 * 1024
HIDDEN: Final = "•••"
_OPENING: Final = ("{", "[")
_PART: Final = re.compile(
    r'\s*("(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[{}\[\],:])', re.DOTALL
)
_HEX_BYTES: Final = 512
_FOLDED_FROM: Final = 3
"""Containers at this depth and below are folded."""
_LONG: Final = 100
"""Lines of a container that is folded at any depth but the first."""


class Piece(msgspec.Struct, frozen=True):
    """A part of a line: its `kind` is a class of the style sheet, `text` is what is shown."""

    kind: str
    text: str


class Line(msgspec.Struct, frozen=True):
    """One line of formatted JSON."""

    depth: int
    pieces: list[Piece]


class Fold(msgspec.Struct, frozen=True):
    """A container that is shown as one line until somebody opens it."""

    head: Line
    inside: list[Line | Fold]
    tail: Line
    count: int
    """Its members."""


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """A payload as it is shown: lines of JSON, or text, or nothing but its size."""

    size: int
    encoding: str
    lines: list[Line | Fold] = msgspec.field(default_factory=list["Line | Fold"])
    text: str = ""
    hidden: bool = False
    """The viewer may not see payloads."""
    redacted: int = 0
    cut: bool = False


def payload(
    data: bytes | None,
    encoding: str | None,
    redact: re.Pattern[str] | None,
    *,
    hidden: bool = False,
    most: int = SHOWN,
) -> Payload | None:
    """The payload for a page; None if there is none. Without `redact` nothing is blotted out."""
    if data is None:
        return None
    word = encoding or "json"
    if hidden:
        return Payload(size=len(data), encoding=word, hidden=True)
    cut = len(data) > most
    if word == "json" and not cut:
        try:
            lines, redacted = format_json(data.decode(), redact)
            shown = folded(lines)
            return Payload(size=len(data), encoding=word, lines=shown, redacted=redacted)
        except (UnicodeDecodeError, ValueError):
            pass
    return Payload(size=len(data), encoding=word, text=_plain(data[:most]), cut=cut)


def format_json(text: str, redact: re.Pattern[str] | None) -> tuple[list[Line], int]:
    """The lines, and how many values were blotted out; raises `ValueError` for other text."""
    return _Walker(text, redact).lines()


def folded(lines: list[Line]) -> list[Line | Fold]:
    """The lines, with deep and long containers each as one that can be opened."""
    return _fold(lines, 0, len(lines))


def _fold(lines: list[Line], begin: int, end: int) -> list[Line | Fold]:
    shown: list[Line | Fold] = []
    at = begin
    while at < end:
        line = lines[at]
        last = _end(lines, at, end) if line.pieces and line.pieces[-1].text in _OPENING else at
        deep = line.depth >= _FOLDED_FROM or (line.depth > 0 and last - at > _LONG)
        if last > at and deep:
            count = sum(each.depth == line.depth + 1 for each in lines[at + 1 : last])
            closing = sum(_closes(each, line.depth + 1) for each in lines[at + 1 : last])
            inside = _fold(lines, at + 1, last)
            shown.append(Fold(line, inside, lines[last], count - closing))
            at = last + 1
        else:
            shown.append(line)
            at += 1
    return shown


def _end(lines: list[Line], at: int, end: int) -> int:
    """The line that closes the container which this one opens."""
    depth = lines[at].depth
    return next(place for place in range(at + 1, end) if lines[place].depth == depth)


def _closes(line: Line, depth: int) -> bool:
    return line.depth == depth and line.pieces[0].text in ("}", "]")


def _plain(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data" and error.start > len(data) - 4:
            return data[: error.start].decode()
        return data[:_HEX_BYTES].hex(" ")
    return "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in text)


class _Walker:
    """Walks the parts once. A container has its members on lines of their own."""

    def __init__(self, text: str, redact: re.Pattern[str] | None) -> None:
        self._redact, self._redacted = redact, 0
        self._parts = list(_parts(text))
        self._at = 0
        self._lines: list[Line] = []

    def lines(self) -> tuple[list[Line], int]:
        self._line(0, [])
        self._value(0, hide=False)
        if self._at != len(self._parts):
            raise ValueError("more than one value")
        return self._lines, self._redacted

    def _line(self, depth: int, pieces: list[Piece]) -> None:
        self._lines.append(Line(depth, pieces))

    def _put(self, kind: str, text: str) -> None:
        self._lines[-1].pieces.append(Piece(kind, text))

    def _next(self) -> str:
        if self._at >= len(self._parts):
            raise ValueError("unfinished")
        self._at += 1
        return self._parts[self._at - 1]

    def _peek(self) -> str:
        return self._parts[self._at] if self._at < len(self._parts) else ""

    def _value(self, depth: int, *, hide: bool) -> None:
        part = self._next()
        if part in "{[":
            if hide:
                self._hide(part, self._skip())
            elif self._peek() in ("}", "]"):
                self._put("p", part + self._next())
            else:
                self._members(part, depth)
        elif part in "}],:":
            raise ValueError(part)
        elif hide:
            self._hide(part, len(part))
        else:
            self._put(_kind(part), part)

    def _members(self, opening: str, depth: int) -> None:
        if depth > 200:
            raise ValueError("nested too deeply")
        self._put("p", opening)
        closing = "}" if opening == "{" else "]"
        while True:
            self._line(depth + 1, [])
            hide = False
            if opening == "{":
                name = self._next()
                if not name.startswith('"') or self._next() != ":":
                    raise ValueError("no key")
                self._put("k", name)
                self._put("p", ": ")
                hide = self._redact is not None and self._redact.search(name[1:-1]) is not None
            self._value(depth + 1, hide=hide)
            part = self._next()
            if part == closing:
                break
            if part != ",":
                raise ValueError(part)
            self._put("p", ",")
        self._line(depth, [])
        self._put("p", closing)

    def _hide(self, part: str, count: int) -> None:
        self._redacted += 1
        long = len(part) - 2 if part.startswith('"') else count
        self._put("h", f"{HIDDEN} ({long} characters)")

    def _skip(self) -> int:
        """Pass over the rest of a container; how many characters it had."""
        depth, count = 1, 1
        while depth:
            part = self._next()
            count += len(part)
            depth += (part in ("{", "[")) - (part in ("}", "]"))
        return count


def _parts(text: str) -> Iterator[str]:
    place, end = 0, len(text.rstrip())
    while place < end:
        found = _PART.match(text, place)
        if found is None:
            raise ValueError("not JSON")
        yield found[1]
        place = found.end()


def _kind(part: str) -> str:
    if part.startswith('"'):
        return "s"
    return "w" if part[0] in "tfn" else "n"
