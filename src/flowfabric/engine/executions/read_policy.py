"""The policy that an execution was created with, and what it has used of it."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.errors import NotFound, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy

READ_POLICY: Final[LiteralString] = """
-- executions.read_policy
SELECT b.policy::text AS policy, e.replay_count, coalesce(e.budget_ids, '{}') AS budget_ids
  FROM ff.execution e JOIN ff.exec_body b USING (partition_key, execution_id)
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
"""


class AppliedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The policy of an execution, how often it was replayed, and the budgets that it spends of."""

    policy: ExecutionPolicy
    replay_count: int
    budget_ids: list[UUID]

    @property
    def replays_left(self) -> int:
        return max(0, self.policy.max_replay_count - self.replay_count)


class _Row(msgspec.Struct, frozen=True):
    policy: str | None
    replay_count: int
    budget_ids: list[UUID]


async def read_policy(conn: Connection, execution_id: ExecutionId) -> AppliedPolicy:
    """The policy; raises `NotFound`, and `ValidationError(corruption)` for one that is none."""
    row = await fetch_maybe(
        conn,
        READ_POLICY,
        _Row,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )
    if row is None:
        raise NotFound("execution", execution_id)
    try:
        policy = ExecutionPolicy.parse(msgspec.json.decode(row.policy or "{}"))
    except ValidationError as error:
        detail = f"execution {execution_id}: policy: {error.detail}"
        raise ValidationError("corruption", detail) from None
    return AppliedPolicy(policy=policy, replay_count=row.replay_count, budget_ids=row.budget_ids)
