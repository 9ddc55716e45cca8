"""absent → open: a flow exists, without members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.flows.flow_tags import check_flow_tags
from flowfabric.ids import check_name, uuid_partition

OPEN_SUMMARY: Final[
    LiteralString
] = """summary AS (          -- open, so that the projection finds the flow
    INSERT INTO ff.flow_summary (
           partition_key, flow_id, total_members, sampled_members, members_completed,
           members_failed, members_cancelled, members_expired, members_skipped, members_active,
           members_suspended, members_waiting, members_delayed, members_rate_limited,
           members_waiting_children, public_flow_state, last_summary_update_at_ms)
    SELECT partition_key, flow_id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'open', ff.now_ms()
      FROM created
)"""
"""Follows a CTE `created`."""

CREATE_FLOW: Final[LiteralString] = (
    """
-- flows.create_flow
WITH created AS (
    INSERT INTO ff.flow_core (
           partition_key, flow_id, flow_kind, namespace, created_at_ms, last_mutation_at_ms, tags)
    VALUES (%(partition_key)s, %(flow_id)s, %(flow_kind)s, %(namespace)s, ff.now_ms(),
            ff.now_ms(), %(tags)s::jsonb)
        ON CONFLICT DO NOTHING
 RETURNING partition_key, flow_id
), """
    + OPEN_SUMMARY
    + """
SELECT count(*) AS moved FROM created
"""
)


class FlowCreated(msgspec.Struct, frozen=True, kw_only=True):
    """This call created the flow."""

    flow_id: UUID


class FlowExists(msgspec.Struct, frozen=True, kw_only=True):
    """A flow of that id existed before; nothing changed."""

    flow_id: UUID


async def create_flow(
    conn: Connection,
    flow_id: UUID,
    *,
    flow_kind: str,
    namespace: str = "default",
    tags: Mapping[str, str] | None = None,
    partitions: int = 256,
) -> FlowCreated | FlowExists:
    """The flow exists and is open; the same id again changes nothing, whatever else is given.

    Raises `ValidationError` (`invalid_input`, `invalid_tag_key`).
    """
    check_name(flow_kind, field="flow_kind")
    check_name(namespace, field="namespace")
    check_flow_tags(tags or {})
    created = await fetch_one(
        conn,
        CREATE_FLOW,
        Moved,
        partition_key=uuid_partition(flow_id, partitions),
        flow_id=flow_id,
        flow_kind=flow_kind,
        namespace=namespace,
        tags=msgspec.json.encode(tags or {}).decode(),
    )
    return FlowCreated(flow_id=flow_id) if created.moved else FlowExists(flow_id=flow_id)
