"""A change of many executions ends after the batch that runs."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.bulk.read_bulk_action import COLUMNS, BulkAction, BulkRow, bulk_action
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.errors import NotFound
from flowfabric.states import BulkState, OperatorEventType

LOCK_BULK_ACTION: Final[LiteralString] = f"""
-- bulk.stop_bulk_action: locks
SELECT {COLUMNS} FROM ff.bulk_action
 WHERE bulk_id = %(bulk_id)s AND (%(namespace)s::text IS NULL OR namespace = %(namespace)s)
   FOR UPDATE
"""

STOP_BULK_ACTION: Final[LiteralString] = f"""
-- bulk.stop_bulk_action
UPDATE ff.bulk_action SET state = 'stopped', ended_at_ms = ff.now_ms()
 WHERE bulk_id = %(bulk_id)s
RETURNING {COLUMNS}
"""


async def stop_bulk_action(
    conn: Connection,
    bulk_id: UUID,
    *,
    namespace: str | None = None,
    actor: str = DEFAULT_ACTOR,
    reason: str | None = None,
) -> BulkAction:
    """No further batch runs; one that has ended stays as it is. Raises `NotFound(bulk_action)`.

    Waits for the batch that runs now. Needs a transaction.
    """
    check_actor(actor)
    row = await fetch_maybe(conn, LOCK_BULK_ACTION, BulkRow, bulk_id=bulk_id, namespace=namespace)
    if row is None:
        raise NotFound("bulk_action", bulk_id)
    if row.state != BulkState.RUNNING:
        return bulk_action(row)
    stopped = await fetch_maybe(conn, STOP_BULK_ACTION, BulkRow, bulk_id=bulk_id)
    await operator_event(
        conn,
        OperatorEventType.BULK_STOPPED,
        actor=actor,
        reason=reason,
        bulk_id=str(bulk_id),
        action=row.action,
        total=row.total,
        done=row.done,
    )
    return bulk_action(stopped or row)
