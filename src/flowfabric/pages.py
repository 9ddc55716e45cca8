"""Pages and batches: how many rows one call may ask for, and where the next page begins."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeVar
from uuid import UUID

from flowfabric.errors import invalid_input
from flowfabric.ids import check_type

T = TypeVar("T")
MAX_PAGE: Final = 1000
FIRST_ID: Final = UUID(int=0)
"""The first page begins after this id."""
NEWEST: Final = (2**63 - 1, UUID(int=2**128 - 1))
"""The first page of a list with the newest first begins before this instant and id."""
_CURSOR: Final = re.compile(r"([0-9]{1,19})/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


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


def newest_before(cursor: str | None, *, page_of: str) -> tuple[int, UUID]:
    """Where a page of a list with the newest first begins; raises as `read_instant_cursor`."""
    return NEWEST if cursor is None else read_instant_cursor(cursor, page_of=page_of)


def cursor_after(
    rows: Sequence[T], limit: int, place: Callable[[T], tuple[int, UUID]]
) -> str | None:
    """The cursor of the page after the first `limit` rows; None if there are no more."""
    return instant_cursor(*place(rows[limit - 1])) if len(rows) > limit else None


def instant_cursor(at_ms: int, last_id: UUID) -> str:
    """The cursor of the page after the row of this instant and id."""
    return f"{at_ms}/{last_id}"


def read_instant_cursor(cursor: str, *, page_of: str) -> tuple[int, UUID]:
    """The instant and id of `instant_cursor`; raises `ValidationError(invalid_cursor)`."""
    found = _CURSOR.fullmatch(check_type(cursor, str, field="cursor"))
    if found is None or int(found[1]) > NEWEST[0]:
        raise invalid_input("cursor", cursor, f"must be the next_cursor of a page of {page_of}")
    return int(found[1]), UUID(found[2])
