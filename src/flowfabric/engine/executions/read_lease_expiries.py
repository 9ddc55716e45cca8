"""When the leases of some executions expire."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant

READ_LEASE_EXPIRIES: Final[LiteralString] = """
-- executions.read_lease_expiries
SELECT l.partition_key, l.execution_id, l.lease_expires_at_ms
  FROM ff.lease l
  JOIN unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS wanted (partition_key, execution_id) USING (partition_key, execution_id)
"""


class _Row(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    lease_expires_at_ms: int


async def read_lease_expiries(
    conn: Connection, execution_ids: Sequence[ExecutionId]
) -> dict[ExecutionId, datetime]:
    """The expiry of each that a worker holds; the others are left out."""
    rows = await fetch_all(
        conn,
        READ_LEASE_EXPIRIES,
        _Row,
        partition_key=[each.partition_key for each in execution_ids],
        execution_id=[each.uuid for each in execution_ids],
    )
    return {
        ExecutionId(row.partition_key, row.execution_id): instant(row.lease_expires_at_ms)
        for row in rows
    }
