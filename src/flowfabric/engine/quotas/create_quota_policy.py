"""A limit exists."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.engine.quotas.quota_policy import limit_columns, policy_id
from flowfabric.errors import invalid_input
from flowfabric.ids import check_name
from flowfabric.instants import check_instant, epoch_ms
from flowfabric.limits import QuotaLimits, quota_policy_partition
from flowfabric.states import OperatorEventType

CREATE_QUOTA_POLICY: Final[LiteralString] = """
-- quotas.create_quota_policy
INSERT INTO ff.quota_policy (
       partition_key, quota_policy_id, namespace, name, window_ms, max_requests_per_window,
       active_concurrency_cap, jitter_ms, created_at_ms, updated_at_ms)
SELECT %(partition_key)s, %(quota_policy_id)s, %(namespace)s, %(name)s, %(window_ms)s,
       %(max_requests_per_window)s, %(active_concurrency_cap)s, %(jitter_ms)s, at_ms, at_ms
  FROM (SELECT coalesce(%(now_ms)s::bigint, ff.now_ms()) AS at_ms) AS now
    ON CONFLICT DO NOTHING
 RETURNING quota_policy_id
"""


class QuotaPolicyCreated(msgspec.Struct, frozen=True, kw_only=True):
    """The limit exists; `created` is false if it existed before, with whatever numbers."""

    quota_policy_id: UUID
    created: bool


class _Created(msgspec.Struct, frozen=True):
    quota_policy_id: UUID


async def create_quota_policy(
    conn: Connection,
    limit: str | UUID,
    limits: QuotaLimits,
    *,
    namespace: str = "default",
    now: datetime | None = None,
    actor: str = DEFAULT_ACTOR,
) -> QuotaPolicyCreated:
    """The limit of this name or id exists; one that existed before keeps its numbers.

    An operator event tells of one that is new. Needs a transaction. Raises `ValidationError`
    (`invalid_quota_spec`, `invalid_input`).
    """
    check_actor(actor)
    if not isinstance(limits, QuotaLimits):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise invalid_input("limits", limits, "must be QuotaLimits")
    check_name(namespace, field="namespace")
    quota_policy_id, columns = policy_id(limit, namespace), limit_columns(limits)
    created = await fetch_maybe(
        conn,
        CREATE_QUOTA_POLICY,
        _Created,
        partition_key=quota_policy_partition(quota_policy_id),
        quota_policy_id=quota_policy_id,
        namespace=namespace,
        name=limit if isinstance(limit, str) else None,
        now_ms=None if now is None else epoch_ms(check_instant(now, field="now")),
        **columns,
    )
    if created is not None:
        await operator_event(
            conn,
            OperatorEventType.LIMIT_CREATED,
            actor=actor,
            reason=None,
            namespace=namespace,
            limit=str(limit),
            window_ms=columns["window_ms"],
            max_requests_per_window=columns["max_requests_per_window"],
            max_concurrent=columns["active_concurrency_cap"],
            jitter_ms=columns["jitter_ms"],
        )
    return QuotaPolicyCreated(quota_policy_id=quota_policy_id, created=created is not None)
