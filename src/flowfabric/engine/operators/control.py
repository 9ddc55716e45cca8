"""The frame of every control: lock the executions, decide row by row, change what may change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final, TypeVar

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.lock_executions import LockedExecution, lock_and_read
from flowfabric.errors import EngineError, NotFound, StaleView, invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.instants import check_instant, epoch_ms, instant

A = TypeVar("A")

MAX_EXECUTIONS: Final = 1000
"""How many executions one call of a control takes."""

Decide = Callable[[LockedExecution], A | EngineError | None]
"""The refusal, or the answer where nothing is to be changed, or None where the row may change."""
Change = Callable[[list[LockedExecution]], Awaitable[dict[ExecutionId, A]]]
"""Changes all of these rows at once, records the operator events, and answers each."""


def each_once(executions: Sequence[ExecutionId]) -> list[ExecutionId]:
    """Each execution once; raises `ValidationError(invalid_input)` for more than 1,000 ids."""
    if len(executions) > MAX_EXECUTIONS:
        raise invalid_input("executions", len(executions), f"must be at most {MAX_EXECUTIONS}")
    return list(dict.fromkeys(executions))


async def control(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    decide: Decide[A],
    change: Change[A],
    seen_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> list[A | EngineError]:
    """One answer for each execution, in the order given; a refusal is an answer like any other.

    An execution that has changed after `seen_at` is answered by `StaleView`, and one that is in
    none of the `namespaces`, if these are given, like one that does not exist.
    An execution that is named twice is changed once and answered twice. The rows are locked in one
    order before they are read, so that every decision holds until the transaction ends; needs a
    transaction. Raises `ValidationError(invalid_input)` for more than 1,000 executions.
    """
    if seen_at is not None:
        check_instant(seen_at, field="expected_last_mutation_at")
    named = each_once(executions)
    if not named:
        return []
    locked = await lock_and_read(conn, named, namespaces=namespaces)
    answers: dict[ExecutionId, A | EngineError] = {}
    changing: list[LockedExecution] = []
    for each in named:
        seen = locked.get(each)
        if seen is None:
            answer = NotFound("execution", each)
        else:
            answer = stale_view(seen, seen_at) or decide(seen)
        if answer is not None:
            answers[each] = answer
        elif seen is not None:
            changing.append(seen)
    if changing:
        answers.update(await change(changing))
    return [answers[each] for each in executions]


def stale_view(seen: LockedExecution, seen_at: datetime | None) -> StaleView | None:
    """The refusal of a caller who has seen the execution before its last change.

    A renewal of its lease is no change.
    """
    if seen_at is None or seen.changed_at_ms <= epoch_ms(seen_at):
        return None
    return StaleView("execution", seen.id, seen_at=seen_at, changed_at=instant(seen.changed_at_ms))


def only(answers: Sequence[A | EngineError]) -> A:
    """The answer to a call for one execution; a refusal is raised."""
    [answer] = answers
    if isinstance(answer, EngineError):
        raise answer
    return answer
