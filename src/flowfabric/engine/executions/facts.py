"""One fact of one execution: its attempt, its count, its tag, its namespace, its flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all, fetch_maybe
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId, PartitionKey, check_tag_key

FACTS: Final[LiteralString] = """
-- executions.facts
SELECT e.attempt_index, e.total_attempt_count, e.tags ->> %(key)s::text AS tag, r.namespace,
       e.flow_id
  FROM ff.exec_core e JOIN ff.route r USING (route_id)
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
"""

READ_EXEC_CORE_FIELDS: Final[LiteralString] = """
-- executions.read_exec_core_fields
SELECT name, to_jsonb(e) ->> name AS value
  FROM unnest(%(names)s::text[]) AS name
  LEFT JOIN ff.exec_core e
    ON (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
"""


class _Facts(msgspec.Struct, frozen=True):
    attempt_index: int
    total_attempt_count: int
    tag: str | None
    namespace: str
    flow_id: UUID | None


class _Field(msgspec.Struct, frozen=True):
    name: str
    value: str | None


async def read_current_attempt_index(conn: Connection, execution_id: ExecutionId) -> int:
    """The index of the attempt that runs, or of the next one; `ValidationError` where none is."""
    return max(0, (await _known(conn, execution_id)).attempt_index)


async def read_total_attempt_count(conn: Connection, execution_id: ExecutionId) -> int:
    """How many attempts were begun; `ValidationError` where there is no such execution."""
    return (await _known(conn, execution_id)).total_attempt_count


async def get_execution_tag(conn: Connection, execution_id: ExecutionId, key: str) -> str | None:
    """The tag's value; None where there is no such tag or no such execution."""
    facts = await _facts(conn, execution_id, key=check_tag_key(key))
    return None if facts is None else facts.tag


async def get_execution_namespace(conn: Connection, execution_id: ExecutionId) -> str | None:
    """The namespace it was created in, or None."""
    facts = await _facts(conn, execution_id)
    return None if facts is None else facts.namespace


async def resolve_execution_flow_id(conn: Connection, execution_id: ExecutionId) -> UUID | None:
    """The flow it belongs to; None for one that stands alone, and where there is none."""
    facts = await _facts(conn, execution_id)
    return None if facts is None else facts.flow_id


async def read_exec_core_fields(
    conn: Connection, partition: PartitionKey, execution_id: ExecutionId, names: Sequence[str]
) -> dict[str, str | None]:
    """The named columns of the execution's row as text; None for what is null or not there."""
    if partition != PartitionKey("fp", execution_id.partition_key):
        raise invalid_input("partition_key", str(partition), f"is not that of {execution_id}")
    if not names:
        return {}
    rows = await fetch_all(
        conn,
        READ_EXEC_CORE_FIELDS,
        _Field,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        names=list(names),
    )
    return {row.name: row.value for row in rows}


async def _known(conn: Connection, execution_id: ExecutionId) -> _Facts:
    facts = await _facts(conn, execution_id)
    if facts is None:
        raise invalid_input("execution_id", str(execution_id), "does not exist")
    return facts


async def _facts(
    conn: Connection, execution_id: ExecutionId, *, key: str | None = None
) -> _Facts | None:
    return await fetch_maybe(
        conn,
        FACTS,
        _Facts,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        key=key,
    )
