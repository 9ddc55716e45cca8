"""Frames of a stream as a page shows them."""

from __future__ import annotations

import re

import msgspec

from flowfabric.dashboard.view.durations import iso
from flowfabric.dashboard.view.json_text import format_json
from flowfabric.engine.streams.frame import Frame

_LONGEST = 4000


class ShownFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A frame: its place, when it came, what it is, and its content as text."""

    id: str
    at: str
    type: str
    text: str


def frame_value(frame: Frame, redact: re.Pattern[str]) -> ShownFrame:
    """The frame, with secret values of JSON blotted out."""
    return ShownFrame(
        id=str(frame.id),
        at=iso(frame.at),
        type=frame.frame_type or "frame",
        text=_text(frame.payload, redact),
    )


def _text(payload: bytes, redact: re.Pattern[str]) -> str:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return payload[:256].hex(" ")
    if text[:1] in ("{", "["):
        try:
            lines, _ = format_json(text, redact)
            text = "".join(
                piece.text + (" " if piece.text == "," else "")
                for line in lines
                for piece in line.pieces
            )
        except ValueError:
            pass
    shown = "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in text)
    return shown if len(shown) <= _LONGEST else shown[:_LONGEST] + "…"
