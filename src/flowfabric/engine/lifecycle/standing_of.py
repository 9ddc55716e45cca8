"""One execution as it stands, locked for the operator who is about to change it."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId

STANDING_OF: Final[LiteralString] = """
-- lifecycle.standing_of
SELECT e.lifecycle_phase, e.eligibility_state, e.blocking_reason, e.terminal_outcome,
       e.attempt_state, e.public_state, e.priority, e.attempt_index, e.replay_count, e.lease_epoch,
       e.lease_id, e.failure_reason, e.cancellation_reason, e.deadline_at_ms,
       coalesce((b.policy ->> 'max_replay_count')::integer, 10) AS max_replay_count
  FROM ff.exec_core e JOIN ff.exec_body b USING (partition_key, execution_id)
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
   FOR NO KEY UPDATE OF e
"""


class Standing(msgspec.Struct, frozen=True):
    """What an operator's checks look at."""

    lifecycle_phase: str
    eligibility_state: str
    blocking_reason: str
    terminal_outcome: str
    attempt_state: str
    public_state: str
    priority: int
    attempt_index: int
    replay_count: int
    lease_epoch: int
    lease_id: UUID | None
    failure_reason: str | None
    cancellation_reason: str | None
    deadline_at_ms: int | None
    max_replay_count: int

    @property
    def word(self) -> str:
        """Where it stands: what holds it back if something does, else its public state."""
        blocked = self.eligibility_state.startswith("blocked_by_")
        return self.eligibility_state if blocked else self.public_state


async def standing_of(conn: Connection, execution_id: ExecutionId) -> Standing:
    """The execution, locked until the transaction ends; raises `NotFound`."""
    standing = await fetch_maybe(
        conn,
        STANDING_OF,
        Standing,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )
    if standing is None:
        raise NotFound("execution", execution_id)
    return standing
