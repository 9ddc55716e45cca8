"""What an operator did, told in the same transaction: who, why, and what was before and after."""

from __future__ import annotations

from typing import Any, Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, execute
from flowfabric.ids import ExecutionId, check_text, clean_text
from flowfabric.states import OperatorEventType

OPERATOR_EVENT: Final[LiteralString] = """
-- lifecycle.operator_event
SELECT ff.emit_operator_event(%(partition_key)s::smallint, %(execution_id)s::uuid,
                              %(flow_id)s::uuid, %(event_type)s, %(actor)s, %(reason)s,
                              %(details)s::jsonb)
"""

SOMEBODY: Final = "operator"
"""The actor where a caller names none."""


def check_actor(actor: str) -> str:
    """The name of whoever acts, if it can be stored."""
    return check_text(actor, field="actor")


async def operator_event(
    conn: Connection,
    event_type: OperatorEventType,
    *,
    actor: str,
    reason: str | None,
    execution_id: ExecutionId | None = None,
    flow: tuple[int, UUID] | None = None,
    **details: Any,
) -> None:
    """One event is written; `details` hold the facts, those of before as `old_…`.

    A flow is named by its partition and its id.
    """
    home = flow[0] if flow is not None else 0
    await execute(
        conn,
        OPERATOR_EVENT,
        partition_key=home if execution_id is None else execution_id.partition_key,
        execution_id=None if execution_id is None else execution_id.uuid,
        flow_id=None if flow is None else flow[1],
        event_type=event_type.value,
        actor=actor,
        reason=None if reason is None else clean_text(reason),
        details=msgspec.json.encode(details).decode(),
    )
