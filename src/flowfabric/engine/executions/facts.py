"""Some columns of one execution, for the operations that answer one of them."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId

FACTS: Final[LiteralString] = """
-- executions.facts
SELECT e.attempt_index, e.total_attempt_count, e.tags ->> %(key)s::text AS tag, r.namespace,
       e.flow_id
  FROM ff.execution e JOIN ff.route r USING (route_id)
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
"""


class ExecutionFacts(msgspec.Struct, frozen=True):
    """`tag` is the value of the tag that was asked for."""

    attempt_index: int
    total_attempt_count: int
    tag: str | None
    namespace: str
    flow_id: UUID | None


async def require_facts(conn: Connection, execution_id: ExecutionId) -> ExecutionFacts:
    """The columns; raises `ValidationError(invalid_input)` if the execution does not exist."""
    facts = await read_facts(conn, execution_id)
    if facts is None:
        raise invalid_input("execution_id", str(execution_id), "does not exist")
    return facts


async def read_facts(
    conn: Connection, execution_id: ExecutionId, *, key: str | None = None
) -> ExecutionFacts | None:
    """The columns, and the tag `key`; None if the execution does not exist."""
    return await fetch_maybe(
        conn,
        FACTS,
        ExecutionFacts,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        key=key,
    )
