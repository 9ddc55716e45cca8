"""How many questions wait for a person: the number beside Approvals, on every page."""

from __future__ import annotations

from typing import Final

from flowfabric.dashboard.visit import Visit
from flowfabric.errors import FlowFabricError

HEADER: Final = "x-ff-inbox"
"""The header of every region by which an open page learns the number."""
_COUNTED: Final = 100


async def waiting(visit: Visit) -> str:
    """`3`, or `100+`; empty for none, and where it cannot be read."""
    try:
        return await visit.shared("inbox", lambda: _count(visit))
    except FlowFabricError:
        return ""


async def _count(visit: Visit) -> str:
    page = await visit.engine.list_open_waitpoints(namespace=visit.namespace, limit=_COUNTED)
    found = sum(each.expires_at is None or each.expires_at > visit.now for each in page.waitpoints)
    if page.next_cursor is not None:
        return f"{_COUNTED}+"
    return str(found) if found else ""
