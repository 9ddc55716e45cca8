"""A limit, by its name or id."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.quotas.quota_policy import (
    POLICY_COLUMNS,
    PolicyRow,
    QuotaPolicy,
    policy_id,
)
from flowfabric.limits import quota_policy_partition

GET_QUOTA_POLICY: Final[LiteralString] = f"""
-- quotas.get_quota_policy
SELECT{POLICY_COLUMNS}
  FROM ff.quota_policy p
 WHERE (p.partition_key, p.quota_policy_id) = (%(partition_key)s, %(quota_policy_id)s)
   AND p.namespace = %(namespace)s
"""


async def get_quota_policy(
    conn: Connection, limit: str | UUID, *, namespace: str = "default"
) -> QuotaPolicy | None:
    """The limit; None if the namespace has none. Raises `ValidationError(corruption)`."""
    quota_policy_id = policy_id(limit, namespace)
    row = await fetch_maybe(
        conn,
        GET_QUOTA_POLICY,
        PolicyRow,
        partition_key=quota_policy_partition(quota_policy_id),
        quota_policy_id=quota_policy_id,
        namespace=namespace,
    )
    return None if row is None else row.policy()
