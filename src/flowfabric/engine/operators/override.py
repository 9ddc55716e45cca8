"""What the overrides share: an operator acts in place of a worker, without the fence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, LiteralString, TypeVar
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lock_executions import LockedExecution
from flowfabric.engine.lifecycle.operator_event import check_actor, operator_events
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.engine.operators.cancel_execution import OPERATOR
from flowfabric.engine.operators.control import control
from flowfabric.errors import EngineError, ExecutionNotActive
from flowfabric.ids import ExecutionId, id_columns
from flowfabric.states import (
    LeaseEventReason,
    LifecyclePhase,
    OperatorEventType,
    PublicState,
    TerminalOutcome,
)

A = TypeVar("A")

# Only a replay changes the epoch of an execution that has ended.
OVERRIDDEN: Final[LiteralString] = """
-- operators.override: what the same override has ended
SELECT e.partition_key, e.execution_id
  FROM ff.execution e
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


async def override_end(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    outcome: TerminalOutcome,
    event_type: OperatorEventType,
    after: PublicState,
    answer: Callable[[ExecutionId, bool], A],
    reason: str | None,
    actor: str,
    failure_reason: str | None = None,
    failure_category: str | None = None,
    result: bytes | None = None,
    result_encoding: str | None = None,
    seen_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> list[A | EngineError]:
    """End executions in place of their workers; the answer of each, and whether it is repeated.

    An execution that the same override has ended before is answered so again, nothing written.
    """
    check_actor(actor)

    async def change(changing: list[LockedExecution]) -> dict[ExecutionId, A]:
        await terminalize(
            conn,
            [each.id for each in changing],
            outcome=outcome,
            reason=failure_reason,
            category=failure_category,
            result=result,
            result_encoding=result_encoding,
            lease_reason=LeaseEventReason.OPERATOR,
        )
        facts = {each.id: override_facts(each, after) for each in changing}
        await operator_events(conn, event_type, facts, actor=actor, reason=reason)
        return {each.id: answer(each.id, False) for each in changing}

    answers = await control(
        conn,
        executions,
        decide=override_refusal,
        change=change,
        seen_at=seen_at,
        namespaces=namespaces,
    )
    ended_before = await _ended_before(conn, answers, event_type)
    return [
        answer(each.execution_id, True)
        if isinstance(each, ExecutionNotActive) and each.execution_id in ended_before
        else each
        for each in answers
    ]


async def _ended_before(
    conn: Connection, answers: Sequence[object], event_type: OperatorEventType
) -> set[ExecutionId]:
    """Of the executions that had ended already, those that the same override has ended."""
    ended = {
        answer.execution_id
        for answer in answers
        if isinstance(answer, ExecutionNotActive)
        and answer.lifecycle_phase == LifecyclePhase.TERMINAL
    }
    if not ended:
        return set()
    rows = await fetch_all(
        conn, OVERRIDDEN, _Overridden, event_type=event_type.value, **id_columns(sorted(ended))
    )
    return {ExecutionId(row.partition_key, row.execution_id) for row in rows}
