"""suspended → terminal, runnable or suspended: the timeout of one suspension has passed."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.suspensions.apply_timeouts import apply_timeouts
from flowfabric.engine.suspensions.expire_suspensions import still_due
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId
from flowfabric.states import LifecyclePhase, TimeoutBehavior

READ_STATE: Final[LiteralString] = """
-- suspensions.expire_suspension: the state of an execution whose timeout does not apply
SELECT lifecycle_phase, public_state FROM ff.execution
 WHERE (partition_key, execution_id) = (%(partition_key)s, %(execution_id)s)
"""


class SuspensionExpired(msgspec.Struct, frozen=True, kw_only=True):
    """The timeout was applied, by this behaviour."""

    execution_id: ExecutionId
    behavior_applied: TimeoutBehavior


class SuspensionNotExpired(msgspec.Struct, frozen=True, kw_only=True):
    """The execution is not suspended, or its timeout has not passed; nothing changed."""

    execution_id: ExecutionId
    reason: str


class _State(msgspec.Struct, frozen=True):
    lifecycle_phase: str
    public_state: str


async def expire_suspension(
    conn: Connection, execution_id: ExecutionId
) -> SuspensionExpired | SuspensionNotExpired:
    """The timeout of the suspension is applied if it has passed, as the sweep would; or why not.

    Needs a transaction. Raises `NotFound`.
    """
    if not await lock_executions(conn, [execution_id]):
        raise NotFound("execution", execution_id)
    due = await still_due(conn, [execution_id])
    if due:
        await apply_timeouts(conn, due)
        return SuspensionExpired(execution_id=execution_id, behavior_applied=due[0].behavior)
    state = await fetch_one(
        conn,
        READ_STATE,
        _State,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )
    suspended = state.lifecycle_phase == LifecyclePhase.SUSPENDED
    reason = "timeout_not_due" if suspended else f"execution_is_{state.public_state}"
    return SuspensionNotExpired(execution_id=execution_id, reason=reason)
