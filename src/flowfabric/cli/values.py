"""Payloads and results for people: decoded, pretty, and cut where they are long."""

from __future__ import annotations

from typing import Final

from flowfabric.app.codec import RAW
from flowfabric.cli.output import counted, json_text
from flowfabric.wire import read_untyped

_AT_MOST: Final = 2_000
_BYTES_AT_MOST: Final = 256
_ON_ONE_LINE: Final = 100


def heading(name: str, data: bytes, encoding: str | None) -> str:
    """`payload, 26 bytes of json`."""
    of = f" of {encoding}" if encoding and encoding != RAW else ""
    return f"{name}, {counted(len(data), 'byte')}{of}"


def value_text(data: bytes, encoding: str | None, *, full: bool) -> str:
    """The value as indented JSON; bytes that are no JSON as text, or as hexadecimal digits."""
    value = read_untyped(data, encoding)
    if isinstance(value, bytes):
        return _bytes_text(value, full=full)
    text = json_text(value)
    return shortened(text if len(text) <= _ON_ONE_LINE else json_text(value, indent=2), full=full)


def shortened(text: str, *, full: bool) -> str:
    """The beginning of a long text, and how to see all of it."""
    if full or len(text) <= _AT_MOST:
        return text
    return f"{text[:_AT_MOST]}…\n({len(text) - _AT_MOST:,} characters more: --full shows all)"


def shortened_start(text: str, *, full: bool) -> str:
    """The end of a long text, beginning with a line, and how to see all of it."""
    if full or len(text) <= _AT_MOST:
        return text
    cut = text.find("\n", len(text) - _AT_MOST) + 1 or len(text) - _AT_MOST
    return f"({cut:,} characters before: --full shows all)\n…\n{text[cut:]}"


def _bytes_text(value: bytes, *, full: bool) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        pass
    else:
        if text.replace("\n", "").replace("\t", "").isprintable():
            return shortened(text, full=full)
    shown = value if full else value[:_BYTES_AT_MOST]
    lines = [shown[start : start + 32].hex(" ") for start in range(0, len(shown), 32)]
    if len(shown) < len(value):
        lines.append(f"({len(value) - len(shown):,} bytes more: --full shows all)")
    return "\n".join(lines)
