"""runnable → runnable: an execution that waits for a worker changes its place in the queue."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, execute
from flowfabric.engine.lifecycle.operator_event import SOMEBODY, check_actor, operator_event
from flowfabric.engine.lifecycle.standing_of import standing_of
from flowfabric.errors import ExecutionNotEligible, invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.policy import clamp_priority
from flowfabric.states import EligibilityState, OperatorEventType

CHANGE_PRIORITY: Final[LiteralString] = """
-- lifecycle.change_priority
UPDATE ff.exec_core
   SET priority = %(priority)s, last_mutation_at_ms = ff.now_ms()
 WHERE (partition_key, execution_id) = (%(partition_key)s, %(execution_id)s)
"""


class PriorityChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The execution has this priority now."""

    execution_id: ExecutionId
    priority: int


async def change_priority(
    conn: Connection,
    execution_id: ExecutionId,
    new_priority: int,
    *,
    actor: str = SOMEBODY,
    reason: str | None = None,
) -> PriorityChanged:
    """The execution is claimed by its new priority (clamped to 0 … 9000); one event tells of it.

    Raises `NotFound`, and `ExecutionNotEligible` unless it waits for a worker.
    """
    check_actor(actor)
    if type(new_priority) is not int:
        raise invalid_input("new_priority", new_priority, "must be a whole number")
    standing = await standing_of(conn, execution_id)
    if standing.eligibility_state != EligibilityState.ELIGIBLE_NOW:
        raise ExecutionNotEligible(execution_id, standing.public_state, word=standing.word)
    priority = clamp_priority(new_priority)
    await execute(
        conn,
        CHANGE_PRIORITY,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        priority=priority,
    )
    await operator_event(
        conn,
        OperatorEventType.PRIORITY_CHANGED,
        actor=actor,
        reason=reason,
        execution_id=execution_id,
        old_priority=standing.priority,
        new_priority=priority,
    )
    return PriorityChanged(execution_id=execution_id, priority=priority)
