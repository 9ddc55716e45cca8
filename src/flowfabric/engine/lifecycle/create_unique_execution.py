"""absent → runnable: an execution whose key no other live execution has; the newest may win."""

from __future__ import annotations

from typing import Final, Literal

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.create_execution import (
    Created,
    Creation,
    Duplicate,
    NewExecution,
    create_execution,
)
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.errors import invalid_input
from flowfabric.states import TerminalOutcome

SUPERSEDED: Final = "superseded"
UniqueConflict = Literal["return", "cancel_old"]
_TRIES: Final = 5


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
    answer: Creation = Duplicate(execution_id=execution.execution_id)
    for _ in range(_TRIES):  # the older one may be replaced by a third one meanwhile
        [answer] = await create_execution(conn, [execution], partitions=partitions)
        if isinstance(answer, Created) or on_conflict == "return":
            return answer
        older = answer.execution_id
        if older == execution.execution_id:
            return answer  # this call, repeated
        if await lock_executions(conn, [older]):
            await terminalize(
                conn,
                [older],
                outcome=TerminalOutcome.CANCELLED,
                reason=SUPERSEDED,
                by="engine",
            )
    return answer
