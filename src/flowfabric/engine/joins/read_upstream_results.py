"""The results of the upstreams of a member, by name."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId

READ_UPSTREAM_RESULTS: Final[LiteralString] = """
-- joins.read_upstream_results
SELECT u.execution_id, b.member_name, r.execution_kind, u.public_state, a.result,
       coalesce(a.result_encoding, b.payload_encoding) AS result_encoding
  FROM ff.edge_group g
  JOIN ff.edge e USING (partition_key, group_id)
  JOIN ff.execution u ON (u.partition_key, u.execution_id) = (e.partition_key, e.upstream_eid)
  JOIN ff.exec_body b ON (b.partition_key, b.execution_id) = (u.partition_key, u.execution_id)
  JOIN ff.route r USING (route_id)
  LEFT JOIN ff.attempt a
    ON (a.partition_key, a.execution_id, a.attempt_index)
     = (u.partition_key, u.execution_id, u.attempt_index) AND u.terminal_outcome = 'success'
 WHERE (g.partition_key, g.waiter_eid) = (%(partition_key)s, %(execution_id)s)
   AND g.waits_as = 'member' AND e.edge_state = 'applied'
 ORDER BY b.member_name, u.execution_id
"""


class UpstreamResult(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream: its result is None unless it succeeded and returned something."""

    execution_id: ExecutionId
    name: str | None
    execution_kind: str
    public_state: str
    result: bytes | None
    result_encoding: str | None


class _Row(msgspec.Struct, frozen=True):
    execution_id: UUID
    member_name: str | None
    execution_kind: str
    public_state: str
    result: bytes | None
    result_encoding: str | None


async def read_upstream_results(
    conn: Connection, execution_id: ExecutionId
) -> list[UpstreamResult]:
    """Every upstream of the member, by name; empty if it has none."""
    home = execution_id.partition_key
    rows = await fetch_all(
        conn,
        READ_UPSTREAM_RESULTS,
        _Row,
        partition_key=home,
        execution_id=execution_id.uuid,
    )
    return [
        UpstreamResult(
            execution_id=ExecutionId(home, row.execution_id),
            name=row.member_name,
            execution_kind=row.execution_kind,
            public_state=row.public_state,
            result=row.result,
            result_encoding=row.result_encoding,
        )
        for row in rows
    ]
