"""A limit has other numbers, for all that starts from now on."""

from __future__ import annotations

from typing import Any, Final, LiteralString
from uuid import UUID

from flowfabric.db.rows import Connection, execute, fetch_maybe
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.engine.quotas.quota_policy import (
    POLICY_COLUMNS,
    PolicyRow,
    QuotaPolicy,
    limit_columns,
    policy_id,
)
from flowfabric.errors import NotFound, invalid_input
from flowfabric.limits import QuotaLimits, quota_policy_partition
from flowfabric.states import OperatorEventType

UPDATE_QUOTA_POLICY: Final[LiteralString] = f"""
-- quotas.update_quota_policy
WITH seen AS (        -- the numbers of before, locked
    SELECT p.partition_key, p.quota_policy_id, p.window_ms, p.max_requests_per_window,
           p.active_concurrency_cap, p.jitter_ms
      FROM ff.quota_policy p
     WHERE (p.partition_key, p.quota_policy_id) = (%(partition_key)s, %(quota_policy_id)s)
       AND p.namespace = %(namespace)s
       FOR NO KEY UPDATE
)
UPDATE ff.quota_policy p
   SET window_ms = %(window_ms)s, max_requests_per_window = %(max_requests_per_window)s,
       active_concurrency_cap = %(active_concurrency_cap)s, jitter_ms = %(jitter_ms)s,
       updated_at_ms = ff.now_ms()
  FROM seen
 WHERE (p.partition_key, p.quota_policy_id) = (seen.partition_key, seen.quota_policy_id)
 RETURNING{POLICY_COLUMNS}, seen.window_ms AS old_window_ms,
          seen.max_requests_per_window AS old_max_requests_per_window,
          seen.active_concurrency_cap AS old_max_concurrent, seen.jitter_ms AS old_jitter_ms
"""

# Its keys are noted instead of locked: a claim that reads the numbers from before may hold
# executions back until it ends, and the sweep locks each key after that.
WAKE_KEYS: Final[LiteralString] = """
-- quotas.update_quota_policy: its keys
INSERT INTO ff.quota_wakeup (partition_key, quota_key_id)
SELECT partition_key, quota_key_id FROM ff.quota_key
 WHERE quota_policy_id = %(quota_policy_id)s
"""


class _Changed(PolicyRow, frozen=True):
    """The limit as it is now, and its numbers of before."""

    old_window_ms: int
    old_max_requests_per_window: int
    old_max_concurrent: int
    old_jitter_ms: int

    def old(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__struct_fields__ if name[:4] == "old_"}

    def new(self) -> dict[str, int]:
        return {
            "window_ms": self.window_ms,
            "max_requests_per_window": self.max_requests_per_window,
            "max_concurrent": self.active_concurrency_cap,
            "jitter_ms": self.jitter_ms,
        }


async def update_quota_policy(
    conn: Connection,
    limit: str | UUID,
    limits: QuotaLimits,
    *,
    namespace: str = "default",
    reason: str | None = None,
    actor: str = DEFAULT_ACTOR,
) -> QuotaPolicy:
    """The limit has these numbers; what they leave room for is let go by the next sweep.

    What runs already goes on, also if the new cap is lower. An operator event tells of numbers that
    have changed. Needs a transaction. Raises `NotFound` and `ValidationError`.
    """
    check_actor(actor)
    if not isinstance(limits, QuotaLimits):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise invalid_input("limits", limits, "must be QuotaLimits")
    quota_policy_id = policy_id(limit, namespace)
    row = await fetch_maybe(
        conn,
        UPDATE_QUOTA_POLICY,
        _Changed,
        partition_key=quota_policy_partition(quota_policy_id),
        quota_policy_id=quota_policy_id,
        namespace=namespace,
        **limit_columns(limits),
    )
    if row is None:
        raise NotFound("limit", limit)
    facts: dict[str, Any] = {**row.new(), **row.old()}
    if list(row.old().values()) != list(row.new().values()):
        await operator_event(
            conn,
            OperatorEventType.LIMIT_CHANGED,
            actor=actor,
            reason=reason,
            namespace=namespace,
            limit=row.name or str(row.quota_policy_id),
            **facts,
        )
    await execute(conn, WAKE_KEYS, quota_policy_id=quota_policy_id)
    return row.policy()
