"""open → closed: a waitpoint takes no more signals; a suspension that waits for it stays open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.operator_event import (
    DEFAULT_ACTOR,
    check_actor,
    operator_events,
)
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId, check_text
from flowfabric.states import OperatorEventType

PROACTIVE: Final = "proactive_close"

CLOSE_WAITPOINTS: Final[LiteralString] = """
-- suspensions.close_waitpoints
WITH seen AS (        -- locked in one order, as they are before
    SELECT w.partition_key, w.waitpoint_id, w.waitpoint_key, w.state, w.close_reason
      FROM ff.waitpoint_pending w
     WHERE w.execution_id = %(execution_id)s AND w.partition_key = %(partition_key)s
       AND w.waitpoint_id = ANY (%(waitpoint_id)s::uuid[])
     ORDER BY w.waitpoint_id FOR NO KEY UPDATE
), closed AS (
    UPDATE ff.waitpoint_pending w
       SET state = 'closed', closed_at_ms = ff.now_ms(), close_reason = %(reason)s::text
      FROM seen
     WHERE (w.partition_key, w.waitpoint_id) = (seen.partition_key, seen.waitpoint_id)
       AND seen.state <> 'closed'
)
SELECT waitpoint_id, waitpoint_key, state, coalesce(close_reason, %(reason)s::text) AS close_reason
  FROM seen
"""


class ClosedWaitpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The waitpoint is closed; `repeated` if it had been before, for that reason."""

    execution_id: ExecutionId
    waitpoint_id: UUID
    close_reason: str
    repeated: bool


class _Seen(msgspec.Struct, frozen=True):
    waitpoint_id: UUID
    waitpoint_key: str
    state: str
    close_reason: str


async def close_waitpoints(
    conn: Connection,
    execution_id: ExecutionId,
    waitpoint_ids: Sequence[UUID],
    *,
    reason: str = PROACTIVE,
    actor: str = DEFAULT_ACTOR,
    by_handler: bool = False,
) -> list[ClosedWaitpoint | NotFound]:
    """The waitpoints of this execution are closed, each with an operator event; in the order given.

    No event tells of a handler that has what it waited for (`by_handler`). One that is closed
    already stays as it is. Needs a transaction. Raises `ValidationError(invalid_input)` for reason
    or actor.
    """
    check_text(reason, field="reason")
    check_actor(actor)
    await lock_executions(conn, [execution_id])
    rows = await fetch_all(
        conn,
        CLOSE_WAITPOINTS,
        _Seen,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        waitpoint_id=list(waitpoint_ids),
        reason=reason,
    )
    seen = {row.waitpoint_id: row for row in rows}
    for row in rows:
        if row.state != "closed" and not by_handler:
            facts = {
                "waitpoint_id": str(row.waitpoint_id),
                "waitpoint_key": row.waitpoint_key,
                "old_state": row.state,
            }
            await operator_events(
                conn,
                OperatorEventType.WAITPOINT_CLOSED,
                {execution_id: facts},
                actor=actor,
                reason=reason,
            )
    return [
        ClosedWaitpoint(
            execution_id=execution_id,
            waitpoint_id=each,
            close_reason=seen[each].close_reason,
            repeated=seen[each].state == "closed",
        )
        if each in seen
        else NotFound("waitpoint", each)
        for each in waitpoint_ids
    ]


async def close_waitpoint(
    conn: Connection,
    execution_id: ExecutionId,
    waitpoint_id: UUID,
    *,
    reason: str = PROACTIVE,
    actor: str = DEFAULT_ACTOR,
) -> ClosedWaitpoint:
    """The waitpoint is closed, with an operator event; one that is closed already stays as it is.

    Needs a transaction. Raises `NotFound` if the execution has no such waitpoint, and
    `ValidationError(invalid_input)` for reason or actor.
    """
    [answer] = await close_waitpoints(
        conn, execution_id, [waitpoint_id], reason=reason, actor=actor
    )
    if isinstance(answer, NotFound):
        raise answer
    return answer
