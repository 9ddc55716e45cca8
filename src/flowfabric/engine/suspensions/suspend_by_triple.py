"""active → suspended: one execution, by the fence triple of a caller that has no handle."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.suspensions.suspension import SuspendAnswer, SuspendRequest, Suspension
from flowfabric.engine.suspensions.try_suspend import try_suspend
from flowfabric.errors import NotFound, StaleLease
from flowfabric.ids import ExecutionId
from flowfabric.ids import attempt_id as id_of_attempt

# Not locked: the fence compares the attempt once more under the lock.
READ_ATTEMPT: Final[LiteralString] = """
-- suspensions.suspend_by_triple: the current attempt
SELECT attempt_index, lease_epoch FROM ff.execution
 WHERE (partition_key, execution_id) = (%(partition_key)s, %(execution_id)s)
"""


class _Attempt(msgspec.Struct, frozen=True):
    attempt_index: int
    lease_epoch: int


async def suspend_by_triple(
    conn: Connection,
    execution_id: ExecutionId,
    suspension: Suspension,
    *,
    lease_id: UUID,
    lease_epoch: int,
    attempt_id: UUID,
) -> SuspendAnswer:
    """As `try_suspend`, for the current attempt of the execution; needs a transaction.

    Raises what `suspend` answers as a refusal, and `StaleLease` if another attempt is current.
    """
    current = await fetch_maybe(
        conn,
        READ_ATTEMPT,
        _Attempt,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )
    if current is None:
        raise NotFound("execution", execution_id)
    if attempt_id != id_of_attempt(execution_id, current.attempt_index):
        raise StaleLease(execution_id, held=lease_epoch, current=current.lease_epoch)
    lease = Lease(execution_id, current.attempt_index, lease_epoch, lease_id)
    fields = {name: getattr(suspension, name) for name in Suspension.__struct_fields__}
    return await try_suspend(conn, SuspendRequest(lease=lease, **fields))
