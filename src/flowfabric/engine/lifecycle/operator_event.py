"""What an operator did is recorded in the same transaction: actor, reason, and the facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.audit import acting_reason, audit
from flowfabric.db.rows import Connection, execute
from flowfabric.ids import ExecutionId, check_text, clean_text
from flowfabric.states import OperatorEventType

OPERATOR_EVENTS: Final[LiteralString] = """
-- lifecycle.operator_events
SELECT ff.emit_operator_event(named.partition_key, named.execution_id, named.flow_id,
                              %(event_type)s, %(actor)s, %(reason)s, named.details::jsonb)
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[], %(flow_id)s::uuid[],
              %(details)s::text[]) AS named (partition_key, execution_id, flow_id, details)
"""

DEFAULT_ACTOR: Final = "operator"
"""The actor of a control whose caller names none."""
_EVENTS: Final = {OperatorEventType.KEY_ROTATED: "waitpoint_hmac_rotation_complete"}
"""What the audit log calls an event, where it is not the event's own word."""


def check_actor(actor: str) -> str:
    """The name of the actor, if it can be stored."""
    return check_text(actor, field="actor")


async def operator_event(
    conn: Connection,
    event_type: OperatorEventType,
    *,
    actor: str,
    reason: str | None,
    flow: tuple[int, UUID] | None = None,
    **details: Any,
) -> None:
    """One event about a flow, given by its partition and its id, or about the whole system.

    `details` hold the facts, those of before as `old_…`.
    """
    why = _why(reason)
    await execute(
        conn,
        OPERATOR_EVENTS,
        partition_key=[0 if flow is None else flow[0]],
        execution_id=[None],
        flow_id=[None if flow is None else flow[1]],
        event_type=event_type.value,
        actor=actor,
        reason=why,
        details=[_json(details)],
    )
    flow_id = None if flow is None else str(flow[1])
    audit(_EVENTS.get(event_type, event_type.value), actor=actor, reason=why, flow_id=flow_id)


async def system_events(
    conn: Connection,
    event_type: OperatorEventType,
    facts: Sequence[Mapping[str, Any]],
    *,
    actor: str,
    reason: str | None,
) -> None:
    """One event about the whole system for each of the facts, which are its details."""
    if not facts:
        return
    why = _why(reason)
    await execute(
        conn,
        OPERATOR_EVENTS,
        partition_key=[0] * len(facts),
        execution_id=[None] * len(facts),
        flow_id=[None] * len(facts),
        event_type=event_type.value,
        actor=actor,
        reason=why,
        details=[_json(details) for details in facts],
    )
    audit(event_type.value, actor=actor, reason=why, count=len(facts))


async def operator_events(
    conn: Connection,
    event_type: OperatorEventType,
    changed: Mapping[ExecutionId, Mapping[str, Any]],
    *,
    actor: str,
    reason: str | None,
) -> None:
    """One event for each changed execution, in the order given, with its own facts as details."""
    if not changed:
        return
    why = _why(reason)
    await execute(
        conn,
        OPERATOR_EVENTS,
        partition_key=[each.partition_key for each in changed],
        execution_id=[each.uuid for each in changed],
        flow_id=[None] * len(changed),
        event_type=event_type.value,
        actor=actor,
        reason=why,
        details=[_json(details) for details in changed.values()],
    )
    for each in changed:
        audit(event_type.value, actor=actor, reason=why, execution_id=str(each))


def _why(reason: str | None) -> str | None:
    """The reason that was given to the operation, else by the person who acts."""
    given = acting_reason() if reason is None else reason
    return None if given is None else clean_text(given)


def _json(details: Mapping[str, Any]) -> str:
    return msgspec.json.encode(details).decode()
