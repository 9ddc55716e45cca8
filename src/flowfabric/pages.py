"""Limits of pages and batches: how many rows one call may ask for."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from flowfabric.errors import invalid_input

MAX_PAGE: Final = 1000
FIRST_ID: Final = UUID(int=0)
"""The first page begins after this id."""


def page_size(limit: int) -> int:
    """`limit`, clamped to `MAX_PAGE`; raises `ValidationError(invalid_input)` if negative."""
    _check_whole("limit", limit)
    if limit < 0:
        raise invalid_input("limit", limit, "must not be negative")
    return min(limit, MAX_PAGE)


def check_limit(limit: int, *, at_most: int = MAX_PAGE, field: str = "limit") -> int:
    """The limit, if it is 1 to `at_most`; raises `ValidationError(invalid_input)`."""
    _check_whole(field, limit)
    if not 1 <= limit <= at_most:
        raise invalid_input(field, limit, f"must be 1 to {at_most}")
    return limit


def _check_whole(field: str, given: object) -> None:
    if type(given) is not int:
        raise invalid_input(field, given, "must be a whole number")
