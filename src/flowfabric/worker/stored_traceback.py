"""The traceback of an error as it is stored with the attempt: bounded, from the inside out."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

_AT_MOST: Final = 16_000
"""Bytes; the column takes a little more."""
_LONGEST_LINE: Final = 2_000
_CUT: Final = "… (the frames above are cut)\n"
_PACKAGE: Final = Path(__file__).parents[1]
_CALLERS: Final = (str(_PACKAGE / "worker"), str(_PACKAGE / "app"))
"""Where the frames are that lead to a handler."""


def stored_traceback(error: BaseException) -> str:
    """The traceback of `error` and its causes, from the frame of the handler on.

    If it is too long, the beginning and the ends of long lines are cut: what remains has the
    innermost frames and the message.
    """
    frames = _from_the_handler(error.__traceback__)
    try:
        text = "".join(traceback.format_exception(type(error), error, frames))
    except Exception:  # the user's __str__ or __repr__ raised
        text = "".join(traceback.format_tb(frames))
    if len(text) * 4 <= _AT_MOST:
        return text
    return _shortened(text)


def _from_the_handler(frames: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames that lead to the handler, unless it has no others."""
    frame = frames
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(_CALLERS):
        frame = frame.tb_next
    return frame or frames


def _shortened(text: str) -> str:
    if len(text.encode("utf-8", "replace")) <= _AT_MOST:
        return text
    lines = [
        line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE].rstrip()}…\n"
        for line in text.splitlines(keepends=True)
    ]
    room, kept = _AT_MOST - len(_CUT.encode()), len(lines)
    while kept and room >= (size := len(lines[kept - 1].encode("utf-8", "replace"))):
        kept, room = kept - 1, room - size
    frame = next((n for n in range(kept, len(lines)) if lines[n].startswith("  File ")), kept)
    return _CUT + "".join(lines[frame:])
