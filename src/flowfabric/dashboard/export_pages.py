"""Exports: the pages of a list, read one after the other while they are sent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final, TypeVar

from flowfabric.audit import audit_now
from flowfabric.dashboard.visit import Visit

MOST_EXPORTED: Final = 10_000
P = TypeVar("P")
T = TypeVar("T")


async def export_pages(
    visit: Visit,
    first: P,
    *,
    rows: Callable[[P], Sequence[T]],
    following: Callable[[P], Awaitable[P | None]],
    words: str,
) -> AsyncGenerator[Sequence[T]]:
    """The rows of each page, up to `MOST_EXPORTED`; the audit log has how many were sent.

    `following` reads the page after this one, if there is one; `words` say what was asked for.
    """
    page: P | None = first
    sent = 0
    try:
        while page is not None:
            found = rows(page)
            yield found
            sent += len(found)
            page = await following(page) if sent < MOST_EXPORTED else None
    finally:
        audit_now("exported", principal=visit.actor, rows=sent, filter=words)
