"""What the overrides share: an operator acts in place of a worker, without the fence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, LiteralString, TypeVar
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lock_executions import LockedExecution
from flowfabric.engine.operators.cancel_execution import OPERATOR
from flowfabric.errors import EngineError, ExecutionNotActive
from flowfabric.ids import ExecutionId, id_columns
from flowfabric.states import LifecyclePhase, OperatorEventType, PublicState

A = TypeVar("A")

# Only a replay changes the epoch of an execution that has ended.
OVERRIDDEN: Final[LiteralString] = """
-- operators.override: what the same override has ended
SELECT e.partition_key, e.execution_id
  FROM ff.exec_core e
  JOIN unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS named (partition_key, execution_id) USING (partition_key, execution_id)
 WHERE EXISTS (SELECT FROM ff.operator_event o
                WHERE o.execution_id = e.execution_id AND o.partition_key = e.partition_key
                  AND o.event_type = %(event_type)s AND o.lease_epoch = e.lease_epoch)
"""


class _Overridden(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID


def override_refusal(seen: LockedExecution) -> EngineError | None:
    """`ExecutionNotActive` unless a worker holds the execution, if only under an expired lease."""
    if seen.lifecycle_phase == LifecyclePhase.ACTIVE:
        return None
    return ExecutionNotActive(
        seen.id,
        lifecycle_phase=seen.lifecycle_phase,
        terminal_outcome=seen.terminal_outcome,
        lease_epoch=seen.lease_epoch,
        attempt_id=seen.attempt_id,
    )


def override_facts(seen: LockedExecution, after: PublicState, **more: Any) -> dict[str, Any]:
    """The details of the operator event: the state and the lease before and after."""
    return {
        "source": OPERATOR,
        "old_public_state": seen.public_state,
        "new_public_state": after.value,
        "attempt_index": seen.attempt_index,
        "lease_id": str(seen.lease_id),
        "worker_instance_id": seen.worker_instance_id,
        "old_lease_epoch": seen.lease_epoch,
        "new_lease_epoch": seen.lease_epoch + 1,
        **more,
    }


async def with_repeats(
    conn: Connection,
    answers: Sequence[A | EngineError],
    event_type: OperatorEventType,
    repeated: Callable[[ExecutionId], A],
) -> list[A | EngineError]:
    """The answers, with `repeated` for executions that the same override has ended before.

    The caller holds the locks of the executions.
    """
    ended = {
        answer.execution_id
        for answer in answers
        if isinstance(answer, ExecutionNotActive)
        and answer.lifecycle_phase == LifecyclePhase.TERMINAL
    }
    if not ended:
        return list(answers)
    rows = await fetch_all(
        conn, OVERRIDDEN, _Overridden, event_type=event_type.value, **id_columns(sorted(ended))
    )
    before = {ExecutionId(row.partition_key, row.execution_id) for row in rows}
    return [
        repeated(answer.execution_id)
        if isinstance(answer, ExecutionNotActive) and answer.execution_id in before
        else answer
        for answer in answers
    ]
