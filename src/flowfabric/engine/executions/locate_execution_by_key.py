"""The execution that was submitted with an idempotency key."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.ids import ExecutionId, check_name, check_text, key_partition

# The window of a key ends, but its row is there until another submit uses the key: an execution
# that waits for weeks is found by its key all the time.
LOCATE_BY_KEY: Final[LiteralString] = """
-- executions.locate_execution_by_key
SELECT k.execution_id FROM ff.exec_idempotency k
 WHERE (k.partition_key, k.namespace, k.idempotency_key)
     = (%(partition_key)s, %(namespace)s, %(idempotency_key)s)
"""


class _Row(msgspec.Struct, frozen=True):
    execution_id: UUID


async def locate_execution_by_key(
    conn: Connection, namespace: str, idempotency_key: str, *, partitions: int = 256
) -> ExecutionId | None:
    """The last execution of this namespace that was submitted with this key, if there is one.

    It is found as long as it is kept, also after the window of its key. Raises
    `ValidationError(invalid_input)`.
    """
    check_name(namespace, field="namespace")
    check_text(idempotency_key, field="idempotency_key", at_most=1024)
    partition_key = key_partition(namespace, idempotency_key, partitions)
    row = await fetch_maybe(
        conn,
        LOCATE_BY_KEY,
        _Row,
        partition_key=partition_key,
        namespace=namespace,
        idempotency_key=idempotency_key,
    )
    return None if row is None else ExecutionId(partition_key, row.execution_id)
