"""The limits of a namespace."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.quotas.quota_policy import POLICY_COLUMNS, PolicyRow, QuotaPolicy
from flowfabric.ids import check_name
from flowfabric.pages import check_limit

LIST_QUOTA_POLICIES: Final[LiteralString] = f"""
-- quotas.list_quota_policies
SELECT{POLICY_COLUMNS}
  FROM ff.quota_policy p
 WHERE p.namespace = %(namespace)s
 ORDER BY p.name NULLS LAST, p.quota_policy_id LIMIT %(limit)s
"""


async def list_quota_policies(
    conn: Connection, *, namespace: str = "default", limit: int = 1000
) -> list[QuotaPolicy]:
    """The limits by name; those without a name come last."""
    check_name(namespace, field="namespace")
    check_limit(limit, at_most=10_000)
    rows = await fetch_all(conn, LIST_QUOTA_POLICIES, PolicyRow, namespace=namespace, limit=limit)
    return [row.policy() for row in rows]
