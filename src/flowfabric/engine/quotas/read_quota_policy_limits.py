"""What a limit allows."""

from __future__ import annotations

from uuid import UUID

from flowfabric.db.rows import Connection
from flowfabric.engine.quotas.get_quota_policy import get_quota_policy
from flowfabric.limits import QuotaLimits


async def read_quota_policy_limits(
    conn: Connection, limit: str | UUID, *, namespace: str = "default"
) -> QuotaLimits | None:
    """The numbers of the limit; None if there is none, so that nothing is limited.

    Raises `ValidationError(corruption)` if the stored numbers are none that a limit can have.
    """
    found = await get_quota_policy(conn, limit, namespace=namespace)
    return None if found is None else found.limits
