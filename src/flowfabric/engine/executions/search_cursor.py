"""The place of one execution in the order of a search, as text for the caller to hand back."""

from __future__ import annotations

import base64
import binascii
import zlib
from uuid import UUID

import msgspec

from flowfabric.errors import invalid_input


def search_cursor(search: msgspec.Struct, created_at_ms: int, execution_id: UUID) -> str:
    """The cursor of the page of this search that begins after this execution."""
    place = created_at_ms.to_bytes(8, "big") + execution_id.bytes
    return base64.urlsafe_b64encode(place + _mark(search)).decode().rstrip("=")


def read_search_cursor(search: msgspec.Struct, cursor: str) -> tuple[int, UUID]:
    """The execution that the page begins after; raises `ValidationError(invalid_cursor)`."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        data = base64.b64decode(padded, altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise invalid_input("cursor", cursor, "was not made by a search") from None
    if len(data) != 28:
        raise invalid_input("cursor", cursor, "was not made by a search")
    if data[24:] != _mark(search):
        raise invalid_input("cursor", cursor, "was made by a search with another filter")
    return int.from_bytes(data[:8], "big") & 2**62 - 1, UUID(bytes=data[8:24])


def _mark(search: msgspec.Struct) -> bytes:
    return zlib.crc32(msgspec.json.encode(search)).to_bytes(4, "big")
