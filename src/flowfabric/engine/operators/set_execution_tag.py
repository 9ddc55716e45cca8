"""One tag of an execution gets a value; the execution does not move."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_events
from flowfabric.engine.lifecycle.tag import tag
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId, check_tag_key, check_tag_value
from flowfabric.states import OperatorEventType
from flowfabric.tags import too_many_tags


async def set_execution_tag(
    conn: Connection,
    execution_id: ExecutionId,
    key: str,
    value: str,
    *,
    actor: str = DEFAULT_ACTOR,
    reason: str | None = None,
    namespaces: Sequence[str] | None = None,
) -> None:
    """The tag has this value, whatever it had; later events carry it.

    A tag that changes leaves an operator event.
    Raises `NotFound`, and `ValidationError(invalid_input)`, also for a tag beyond the limits of
    `flowfabric.tags`.
    """
    check_actor(actor)
    tagged = await tag(
        conn,
        [execution_id],
        key=check_tag_key(key),
        value=check_tag_value(value, key=key),
        namespaces=namespaces,
    )
    change = tagged.get(execution_id)
    if change is None:
        raise NotFound("execution", execution_id)
    if not change.tagged:
        raise too_many_tags(key)
    if change.old_value != value:
        facts = {"key": key, "value": value, "old_value": change.old_value}
        kind = OperatorEventType.EXECUTION_TAGGED
        await operator_events(conn, kind, {execution_id: facts}, actor=actor, reason=reason)
