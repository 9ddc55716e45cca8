"""A limit is gone; what it held back can be claimed."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_maybe
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.engine.quotas.quota_policy import policy_id
from flowfabric.engine.quotas.update_quota_policy import WAKE_KEYS
from flowfabric.errors import NotFound
from flowfabric.limits import quota_policy_partition
from flowfabric.states import OperatorEventType

DELETE_QUOTA_POLICY: Final[LiteralString] = """
-- quotas.delete_quota_policy
DELETE FROM ff.quota_policy p
 WHERE (p.partition_key, p.quota_policy_id) = (%(partition_key)s, %(quota_policy_id)s)
   AND p.namespace = %(namespace)s
 RETURNING p.quota_policy_id, p.name
"""


class _Deleted(msgspec.Struct, frozen=True):
    quota_policy_id: UUID
    name: str | None


async def delete_quota_policy(
    conn: Connection,
    limit: str | UUID,
    *,
    namespace: str = "default",
    reason: str | None = None,
    actor: str = DEFAULT_ACTOR,
) -> None:
    """The limit is gone, and executions that have it run without it; needs a transaction.

    What it held back is let go by the next sweeps. A new execution with the limit is refused. An
    operator event tells of it. Raises `NotFound`.
    """
    check_actor(actor)
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
    await operator_event(
        conn,
        OperatorEventType.LIMIT_DELETED,
        actor=actor,
        reason=reason,
        namespace=namespace,
        limit=deleted.name or str(deleted.quota_policy_id),
    )
    await execute(conn, WAKE_KEYS, quota_policy_id=quota_policy_id)
