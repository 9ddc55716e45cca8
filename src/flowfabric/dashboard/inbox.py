"""What stands around every page: how many questions wait for a person, and the namespaces."""

from __future__ import annotations

from typing import Any, Final

from flowfabric.dashboard.visit import Visit
from flowfabric.errors import FlowFabricError

HEADER: Final = "x-ff-inbox"
"""The header of every region by which an open page learns the number."""
_COUNTED: Final = 100
_NAMED: Final = 200


async def shell(visit: Visit) -> dict[str, Any]:
    """What every page shows around its content: the number, and the namespaces to choose from."""
    try:
        namespaces = await visit.site.namespaces() if visit.principal.everywhere else []
    except FlowFabricError:
        namespaces = []
    return {"inbox_waiting": await waiting(visit), "all_known": namespaces[:_NAMED]}


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
