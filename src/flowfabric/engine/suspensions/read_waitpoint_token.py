"""The token of an open waitpoint, for operators and for bridges that compare it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.audit import audit
from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.ids import ExecutionId
from flowfabric.tokens import WaitpointToken

READ_OPEN: Final[LiteralString] = """
-- suspensions.read_waitpoint_token
SELECT w.token FROM ff.waitpoint_pending w JOIN ff.exec_core e USING (partition_key, execution_id)
  JOIN ff.route r USING (route_id)
 WHERE (w.partition_key, w.waitpoint_id) = (%(partition_key)s, %(waitpoint_id)s)
   AND w.execution_id = %(execution_id)s AND w.state <> 'closed'
   AND e.lifecycle_phase <> 'terminal'
   AND (%(namespaces)s::text[] IS NULL OR r.namespace = ANY (%(namespaces)s::text[]))
"""


class _Row(msgspec.Struct, frozen=True):
    token: str

    def __repr__(self) -> str:
        return "_Row(<REDACTED>)"


async def read_waitpoint_token(
    conn: Connection,
    execution_id: ExecutionId,
    waitpoint_id: UUID,
    *,
    namespaces: Sequence[str] | None = None,
) -> WaitpointToken | None:
    """The token; None if the execution has no such waitpoint, or it takes no more signals."""
    row = await fetch_maybe(
        conn,
        READ_OPEN,
        _Row,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        waitpoint_id=waitpoint_id,
        namespaces=namespaces,
    )
    if row is None or not row.token:
        return None
    audit("waitpoint_token_read", execution_id=str(execution_id), waitpoint_id=str(waitpoint_id))
    return WaitpointToken(row.token)
