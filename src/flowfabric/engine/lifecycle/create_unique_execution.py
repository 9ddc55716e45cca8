"""absent → runnable: an execution whose key no other live execution has; the newest may win."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.create_execution import (
    Creation,
    Duplicate,
    NewExecution,
    create_execution,
)
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.errors import IdempotencyConflict, invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.states import TerminalOutcome

SUPERSEDED: Final = "superseded"
UniqueConflict = Literal["return", "cancel_old"]
_TRIES: Final = 5
_AT_ONCE: Final = 1000


async def create_unique_execution(
    conn: Connection,
    execution: NewExecution,
    *,
    on_conflict: UniqueConflict = "return",
    partitions: int = 256,
) -> Creation:
    """The execution exists, unless another one has its key; needs a transaction.

    The answer is a `Duplicate` of the other one then. With `cancel_old` the other one is cancelled
    (`superseded`) by the same transaction, also while it runs, and this one is created. Raises as
    `create_execution`.
    """
    if on_conflict not in ("return", "cancel_old"):
        raise invalid_input("on_conflict", on_conflict, "must be 'return' or 'cancel_old'")
    cancel_old = [execution.execution_id] if on_conflict == "cancel_old" else []
    [answer] = await create_unique_executions(
        conn, [execution], cancel_old=cancel_old, partitions=partitions
    )
    return answer


async def create_unique_executions(
    conn: Connection,
    executions: Sequence[NewExecution],
    *,
    cancel_old: Collection[ExecutionId] = (),
    partitions: int = 256,
) -> list[Creation]:
    """As `create_unique_execution` for many, those of `cancel_old` with `cancel_old`.

    Of several among those with one key the last is created, and the answer for the others is a
    `Duplicate` of it. Raises an `IdempotencyConflict` of any of them too; then none is created.
    """
    superseding = {*cancel_old}
    newest = {
        _key(each): each
        for each in executions
        if each.execution_id in superseding and each.unique_until is not None
    }
    answers: dict[ExecutionId, Creation] = {}
    left = [each for each in executions if newest.get(_key(each), each) is each]
    for _ in range(_TRIES):  # the older ones may be replaced by others meanwhile
        for first in range(0, len(left), _AT_ONCE):
            chunk = left[first : first + _AT_ONCE]
            made = await create_execution(conn, chunk, partitions=partitions)
            answers |= {new.execution_id: each for new, each in zip(chunk, made, strict=True)}
        for answer in answers.values():
            if isinstance(answer, IdempotencyConflict):
                raise answer
        left = [new for new in newest.values() if _has_older(new, answers[new.execution_id])]
        if not left:
            break
        older = [answers[new.execution_id].execution_id for new in left]
        locked = await lock_executions(conn, sorted(older))
        if locked:
            await terminalize(
                conn, locked, outcome=TerminalOutcome.CANCELLED, reason=SUPERSEDED, by="engine"
            )
    return [_answer(new, newest, answers) for new in executions]


def _key(new: NewExecution) -> tuple[str, str | None]:
    return new.namespace, new.idempotency_key


def _has_older(new: NewExecution, answer: Creation) -> bool:
    """Does another execution have the key? Not if the call is repeated."""
    return isinstance(answer, Duplicate) and answer.execution_id != new.execution_id


def _answer(
    new: NewExecution,
    newest: Mapping[tuple[str, str | None], NewExecution],
    answers: Mapping[ExecutionId, Creation],
) -> Creation:
    if new.execution_id in answers:
        return answers[new.execution_id]
    return Duplicate(execution_id=answers[newest[_key(new)].execution_id].execution_id)
