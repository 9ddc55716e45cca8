"""The position of a subscriber as opaque bytes, which it stores and resumes from."""

from __future__ import annotations

import re
from typing import Final

from flowfabric.errors import invalid_input

FROM_NOW: Final = b""
"""The cursor of a subscriber that wants only events from now on."""

_PREFIX: Final = b"\x02"
_WIDTH: Final = 8
_GREATEST: Final = 2**63 - 1
_HEX: Final = re.compile("(?:[0-9a-fA-F]{2})*")


def encode_cursor(event_id: int) -> bytes:
    """The cursor of a subscriber that has read every event up to this one."""
    return _PREFIX + event_id.to_bytes(_WIDTH, "big")


def decode_cursor(cursor: bytes) -> int | None:
    """The id of the last event that was read; None for the empty cursor, which means from now on.

    Raises `ValidationError(invalid_input)` for bytes that are not a cursor.
    """
    if not cursor:
        return None
    given = bytes(cursor)
    if not given.startswith(_PREFIX) or len(given) != len(_PREFIX) + _WIDTH:
        raise invalid_input("cursor", given.hex(), "must be empty, or 02 and 8 bytes of event id")
    event_id = int.from_bytes(given[len(_PREFIX) :], "big")
    if event_id > _GREATEST:
        raise invalid_input("cursor", given.hex(), "names an event id that cannot exist")
    return event_id


def cursor_to_hex(cursor: bytes) -> str:
    """The cursor as text, for a command line or a URL."""
    return cursor.hex()


def cursor_from_hex(text: str) -> bytes:
    """The cursor of that text; raises `ValidationError(invalid_input)` if it is not one."""
    if not text.isascii() or (not text.isalnum() and text):
        raise invalid_input("cursor", text, "must be hexadecimal")
    try:
        cursor = bytes.fromhex(text)
    except ValueError:
        raise invalid_input("cursor", text, "must be hexadecimal") from None
    decode_cursor(cursor)
    return cursor
