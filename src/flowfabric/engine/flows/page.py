"""How long a page may be."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from flowfabric.errors import invalid_input

MAX_PAGE: Final = 1000

FIRST_ID: Final = UUID(int=0)


def page_size(limit: int) -> int:
    if limit < 0:
        raise invalid_input("limit", limit, "must not be negative")
    return min(limit, MAX_PAGE)
