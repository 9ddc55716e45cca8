"""A limit is gone; what it held back can be claimed."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_maybe
from flowfabric.engine.quotas.quota_policy import policy_id
from flowfabric.engine.quotas.update_quota_policy import WAKE_KEYS
from flowfabric.errors import NotFound
from flowfabric.limits import quota_policy_partition

DELETE_QUOTA_POLICY: Final[LiteralString] = """
-- quotas.delete_quota_policy
DELETE FROM ff.quota_policy p
 WHERE (p.partition_key, p.quota_policy_id) = (%(partition_key)s, %(quota_policy_id)s)
   AND p.namespace = %(namespace)s
 RETURNING p.quota_policy_id
"""


class _Deleted(msgspec.Struct, frozen=True):
    quota_policy_id: UUID


async def delete_quota_policy(
    conn: Connection, limit: str | UUID, *, namespace: str = "default"
) -> None:
    """The limit is gone, and executions that have it run without it; needs a transaction.

    What it held back is let go by the next sweeps. A new execution with the limit is refused.
    Raises `NotFound`.
    """
    quota_policy_id = policy_id(limit, namespace)
    deleted = await fetch_maybe(
        conn,
        DELETE_QUOTA_POLICY,
        _Deleted,
        partition_key=quota_policy_partition(quota_policy_id),
        quota_policy_id=quota_policy_id,
        namespace=namespace,
    )
    if deleted is None:
        raise NotFound("limit", limit)
    await execute(conn, WAKE_KEYS, quota_policy_id=quota_policy_id)
