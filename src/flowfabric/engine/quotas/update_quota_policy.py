"""A limit has other numbers, for all that starts from now on."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

from flowfabric.db.rows import Connection, execute, fetch_maybe
from flowfabric.engine.quotas.quota_policy import (
    POLICY_COLUMNS,
    PolicyRow,
    QuotaPolicy,
    limit_columns,
    policy_id,
)
from flowfabric.errors import NotFound, invalid_input
from flowfabric.limits import QuotaLimits, quota_policy_partition

UPDATE_QUOTA_POLICY: Final[LiteralString] = f"""
-- quotas.update_quota_policy
UPDATE ff.quota_policy p
   SET window_ms = %(window_ms)s, max_requests_per_window = %(max_requests_per_window)s,
       active_concurrency_cap = %(active_concurrency_cap)s, jitter_ms = %(jitter_ms)s,
       updated_at_ms = ff.now_ms()
 WHERE (p.partition_key, p.quota_policy_id) = (%(partition_key)s, %(quota_policy_id)s)
   AND p.namespace = %(namespace)s
 RETURNING{POLICY_COLUMNS}
"""

# Its keys are noted instead of locked: a claim that reads the numbers from before may hold
# executions back until it ends, and the sweep locks each key after that.
WAKE_KEYS: Final[LiteralString] = """
-- quotas.update_quota_policy: its keys
INSERT INTO ff.quota_wakeup (partition_key, quota_key_id)
SELECT partition_key, quota_key_id FROM ff.quota_key
 WHERE quota_policy_id = %(quota_policy_id)s
"""


async def update_quota_policy(
    conn: Connection, limit: str | UUID, limits: QuotaLimits, *, namespace: str = "default"
) -> QuotaPolicy:
    """The limit has these numbers; what they leave room for is let go by the next sweep.

    What runs already goes on, also if the new cap is lower. Needs a transaction. Raises `NotFound`
    and `ValidationError`.
    """
    if not isinstance(limits, QuotaLimits):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise invalid_input("limits", limits, "must be QuotaLimits")
    quota_policy_id = policy_id(limit, namespace)
    row = await fetch_maybe(
        conn,
        UPDATE_QUOTA_POLICY,
        PolicyRow,
        partition_key=quota_policy_partition(quota_policy_id),
        quota_policy_id=quota_policy_id,
        namespace=namespace,
        **limit_columns(limits),
    )
    if row is None:
        raise NotFound("limit", limit)
    await execute(conn, WAKE_KEYS, quota_policy_id=quota_policy_id)
    return row.policy()
