"""A flow is locked, if it has not changed since its caller read it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.errors import NotFound
from flowfabric.refuse_stale import refuse_stale

LOCK_AS_SEEN: Final[LiteralString] = """
-- flows.lock_as_seen
SELECT last_mutation_at_ms FROM ff.flow_core
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
   AND (%(namespaces)s::text[] IS NULL OR namespace = ANY (%(namespaces)s::text[]))
   FOR NO KEY UPDATE
"""


class _Flow(msgspec.Struct, frozen=True):
    last_mutation_at_ms: int


async def lock_as_seen(
    conn: Connection,
    partition_key: int,
    flow_id: UUID,
    *,
    seen_at: datetime,
    namespaces: Sequence[str] | None = None,
) -> None:
    """Nobody changes the flow until the transaction ends.

    Raises `NotFound(flow)`, and `StaleView` for a flow that has changed after `seen_at`.
    """
    flow = await fetch_maybe(
        conn,
        LOCK_AS_SEEN,
        _Flow,
        partition_key=partition_key,
        flow_id=flow_id,
        namespaces=namespaces,
    )
    if flow is None:
        raise NotFound("flow", flow_id)
    refuse_stale("flow", flow_id, seen_at, changed_at_ms=flow.last_mutation_at_ms)
