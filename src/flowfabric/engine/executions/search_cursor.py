"""The place of one execution in the order of a search, as text for the caller to hand back."""

from __future__ import annotations

import base64
import binascii
from uuid import UUID

from flowfabric.errors import invalid_input


def search_cursor(created_at_ms: int, execution_id: UUID) -> str:
    """The cursor of the page that begins after this execution."""
    return base64.urlsafe_b64encode(created_at_ms.to_bytes(8, "big") + execution_id.bytes).decode()


def read_search_cursor(cursor: str) -> tuple[int, UUID]:
    """The execution that the page begins after; raises `ValidationError(invalid_input)`."""
    try:
        data = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise invalid_input("cursor", cursor, "was not made by a search") from None
    if len(data) != 24:
        raise invalid_input("cursor", cursor, "was not made by a search")
    return int.from_bytes(data[:8], "big") & 2**62 - 1, UUID(bytes=data[8:])
