"""absent → delayed: calls of one key that come soon after one another become one execution."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Literal, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.lifecycle.create_execution import (
    Created,
    Creation,
    NewExecution,
    create_execution,
)
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.errors import IdempotencyConflict, invalid_input
from flowfabric.policy import milliseconds

DEBOUNCE_EXECUTION: Final[LiteralString] = """
-- lifecycle.debounce_execution
WITH named AS (       -- locked by an earlier statement: no claim takes it meanwhile
    SELECT e.partition_key, e.execution_id, e.created_at_ms,
           r.execution_kind = %(execution_kind)s AS is_same
      FROM ff.exec_core e JOIN ff.route r USING (route_id)
     WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
       AND ff.key_stands(e.partition_key, e.execution_id, 'started')
), moved AS (         -- one whose delay is over waits for a worker, and is not delayed again
    UPDATE ff.exec_core e
       SET delay_until_ms = least(ff.now_ms() + %(wait_ms)s::bigint,
                                  named.created_at_ms + %(max_wait_ms)s::bigint),
           last_mutation_at_ms = ff.now_ms()
      FROM named
     WHERE (e.partition_key, e.execution_id) = (named.partition_key, named.execution_id)
       AND e.eligibility_state = 'not_eligible_until_time' AND named.is_same
), rewritten AS (
    UPDATE ff.exec_body b SET payload = %(payload)s, payload_encoding = %(payload_encoding)s
      FROM named
     WHERE (b.partition_key, b.execution_id) = (named.partition_key, named.execution_id)
       AND %(rewrites)s::boolean AND named.is_same
)
SELECT is_same FROM named
"""
_TRIES: Final = 5


class _Waiting(msgspec.Struct, frozen=True):
    is_same: bool


async def debounce_execution(
    conn: Connection,
    execution: NewExecution,
    *,
    wait: float | timedelta,
    max_wait: float | timedelta | None = None,
    payload: Literal["first", "last"] = "last",
    partitions: int = 256,
) -> Creation:
    """One execution of the key waits, `wait` after the last call; needs a transaction.

    The first call creates it with a delay of `wait`. A call that comes before it has started moves
    its delay, at most to `max_wait` after the first call, and with `payload="last"` gives it
    another payload; the answer is a `Duplicate` then, or an `IdempotencyConflict` if it is of
    another kind, and nothing changes. Once it has started, the next call creates another one.
    Raises `ValidationError`, and as `create_execution`.
    """
    wait_ms = milliseconds(wait, field="wait")
    max_wait_ms = 10 * wait_ms if max_wait is None else milliseconds(max_wait, field="max_wait")
    if wait_ms < 1:
        raise invalid_input("wait", wait, "must be positive")
    if max_wait_ms < wait_ms:
        raise invalid_input("max_wait", max_wait, "must be at least wait")
    if payload not in ("first", "last"):
        raise invalid_input("payload", payload, "must be 'first' or 'last'")
    new = msgspec.structs.replace(
        execution, delay=wait_ms / 1000, unique_until="started", on_conflict="return"
    )
    [answer] = await create_execution(conn, [new], partitions=partitions)
    for _ in range(_TRIES):
        if isinstance(answer, Created) or answer.execution_id in (None, new.execution_id):
            return answer
        waiting = answer.execution_id
        await lock_executions(conn, [waiting])
        found = await fetch_maybe(
            conn,
            DEBOUNCE_EXECUTION,
            _Waiting,
            execution_kind=new.execution_kind,
            partition_key=waiting.partition_key,
            execution_id=waiting.uuid,
            wait_ms=wait_ms,
            max_wait_ms=max_wait_ms,
            payload=new.input_payload,
            payload_encoding=new.payload_encoding,
            rewrites=payload == "last",
        )
        if found is not None and not found.is_same:
            key = new.idempotency_key or ""
            return IdempotencyConflict(key, execution_id=waiting, differs=["kind"])
        if found is not None:
            return answer
        [answer] = await create_execution(conn, [new], partitions=partitions)
    return answer
