"""open → closed: a waitpoint takes no more signals; a handler that waits for it runs again."""

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
from flowfabric.engine.lifecycle.resume import Resume, resume
from flowfabric.engine.lifecycle.sql.by_key import open_suspension
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId, check_text
from flowfabric.states import OperatorEventType
from flowfabric.states.waits import PROACTIVE_CLOSE

_RESUMED_BY_CLOSE: Final = "waitpoint_closed"

CLOSE_WAITPOINTS: Final[LiteralString] = f"""
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
SELECT waitpoint_id, waitpoint_key, state, coalesce(close_reason, %(reason)s::text) AS close_reason,
       state = 'active' AND EXISTS (
           SELECT FROM ff.suspension_current s
            WHERE {open_suspension("%(partition_key)s::smallint", "%(execution_id)s::uuid")}
              AND s.keeps_waitpoints) AS is_awaited
  FROM seen
"""


class ClosedWaitpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The waitpoint is closed; `repeated` if it had been before, for that reason.

    `resumed` if a suspended handler waited for it, which runs again.
    """

    execution_id: ExecutionId
    waitpoint_id: UUID
    close_reason: str
    repeated: bool
    resumed: bool = False


class _Seen(msgspec.Struct, frozen=True):
    waitpoint_id: UUID
    waitpoint_key: str
    state: str
    close_reason: str
    is_awaited: bool
    """Does a suspended handler wait for it?"""


async def close_waitpoints(
    conn: Connection,
    execution_id: ExecutionId,
    waitpoint_ids: Sequence[UUID],
    *,
    reason: str = PROACTIVE_CLOSE,
    actor: str = DEFAULT_ACTOR,
    by_handler: bool = False,
) -> list[ClosedWaitpoint | NotFound]:
    """The waitpoints of this execution are closed, each with an operator event; in the order given.

    A suspended handler that waits for one of them can be claimed: it finds that the signal cannot
    come any more, and waits again for what still can. A suspension that no handler made stays as
    it is. No event tells of a handler that has what it waited for (`by_handler`). A waitpoint that
    is closed already stays as it is. Needs a transaction. Raises `ValidationError(invalid_input)`
    for reason or actor.
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
    if any(row.is_awaited for row in rows):
        await resume(conn, [Resume(execution_id=execution_id)], close_reason=_RESUMED_BY_CLOSE)
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
            resumed=seen[each].is_awaited,
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
    reason: str = PROACTIVE_CLOSE,
    actor: str = DEFAULT_ACTOR,
) -> ClosedWaitpoint:
    """The waitpoint is closed, with an operator event; one that is closed already stays as it is.

    A suspended handler that waits for it can be claimed, as by `close_waitpoints`. Needs a
    transaction. Raises `NotFound` if the execution has no such waitpoint, and
    `ValidationError(invalid_input)` for reason or actor.
    """
    [answer] = await close_waitpoints(
        conn, execution_id, [waitpoint_id], reason=reason, actor=actor
    )
    if isinstance(answer, NotFound):
        raise answer
    return answer
