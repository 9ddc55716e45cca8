"""One tag of a flow gets a value."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.flows.flow_tags import check_flow_tag_key
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.errors import NotFound
from flowfabric.ids import check_tag_value, uuid_partition
from flowfabric.refuse_stale import refuse_stale, seen_at_ms
from flowfabric.states import OperatorEventType
from flowfabric.tags import too_many_tags

SET_FLOW_TAG: Final[LiteralString] = """
-- flows.set_flow_tag
WITH seen AS (        -- locked, so that two tags at once do not both take the last place
    SELECT partition_key, flow_id, tags ->> %(key)s::text AS old_value, last_mutation_at_ms
      FROM ff.flow_core
     WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
       AND (%(namespaces)s::text[] IS NULL OR namespace = ANY (%(namespaces)s::text[]))
       FOR NO KEY UPDATE
), tagged AS (
    UPDATE ff.flow_core f
       SET tags = f.tags || jsonb_build_object(%(key)s::text, %(value)s::text),
           last_mutation_at_ms = ff.now_ms()
      FROM seen
     WHERE (f.partition_key, f.flow_id) = (seen.partition_key, seen.flow_id)
       AND ff.tags_fault(f.tags || jsonb_build_object(%(key)s::text, %(value)s::text)) IS NULL
       AND coalesce(f.last_mutation_at_ms <= %(seen_at_ms)s::bigint, true)
 RETURNING 1
)
SELECT EXISTS (SELECT FROM tagged) AS tagged, old_value, last_mutation_at_ms FROM seen
"""


class _Found(msgspec.Struct, frozen=True):
    tagged: bool
    old_value: str | None
    last_mutation_at_ms: int


async def set_flow_tag(
    conn: Connection,
    flow_id: UUID,
    key: str,
    value: str,
    *,
    actor: str = DEFAULT_ACTOR,
    reason: str | None = None,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
    partitions: int = 256,
) -> None:
    """The tag has this value, whatever it had before; the graph revision stays.

    A tag that changes leaves an operator event.
    Raises `NotFound`, `StaleView` for a flow that has changed after `expected_last_mutation_at`,
    and `ValidationError` (`invalid_tag_key`; `invalid_input`, also for a tag
    beyond the limits of `flowfabric.tags`).
    """
    check_actor(actor)
    partition = uuid_partition(flow_id, partitions)
    found = await fetch_maybe(
        conn,
        SET_FLOW_TAG,
        _Found,
        partition_key=partition,
        flow_id=flow_id,
        key=check_flow_tag_key(key),
        value=check_tag_value(value, key=key),
        seen_at_ms=seen_at_ms(expected_last_mutation_at),
        namespaces=namespaces,
    )
    if found is None:
        raise NotFound("flow", flow_id)
    refuse_stale(
        "flow", flow_id, expected_last_mutation_at, changed_at_ms=found.last_mutation_at_ms
    )
    if not found.tagged:
        raise too_many_tags(key)
    if found.old_value != value:
        await operator_event(
            conn,
            OperatorEventType.FLOW_TAGGED,
            actor=actor,
            reason=reason,
            flow=(partition, flow_id),
            flow_id=str(flow_id),
            key=key,
            value=value,
            old_value=found.old_value,
        )
