"""The input of an execution, for a handler that does not hold its lease."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.tags import read_tags

READ_EXECUTION_CONTEXT: Final[LiteralString] = """
-- executions.read_execution_context
SELECT b.payload, b.payload_encoding, r.execution_kind, e.tags
  FROM ff.execution e
  JOIN ff.exec_body b USING (partition_key, execution_id)
  JOIN ff.route r USING (route_id)
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
   AND (%(namespaces)s::text[] IS NULL OR r.namespace = ANY (%(namespaces)s::text[]))
"""


class ExecutionContext(msgspec.Struct, frozen=True, kw_only=True):
    """The input of an execution, with its kind and tags."""

    input_payload: bytes
    payload_encoding: str | None
    execution_kind: str
    tags: dict[str, str]


class _Row(msgspec.Struct, frozen=True):
    payload: bytes
    payload_encoding: str | None
    execution_kind: str
    tags: str


async def read_execution_context(
    conn: Connection, execution_id: ExecutionId, *, namespaces: Sequence[str] | None = None
) -> ExecutionContext:
    """The input; raises `ValidationError(invalid_input)` if the execution does not exist.

    One that is in none of the namespaces, if these are given, does not exist.
    """
    row = await fetch_maybe(
        conn,
        READ_EXECUTION_CONTEXT,
        _Row,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        namespaces=namespaces,
    )
    if row is None:
        raise invalid_input("execution_id", str(execution_id), "does not exist")
    tags = read_tags(row.tags)
    return ExecutionContext(
        input_payload=row.payload,
        payload_encoding=row.payload_encoding,
        execution_kind=row.execution_kind,
        tags=dict(sorted(tags.items())),
    )
