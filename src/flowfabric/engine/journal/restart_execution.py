"""active → runnable: the handler begins anew with an empty journal and other arguments."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, execute
from flowfabric.engine.journal.kept_entries import Mark, kept_entries
from flowfabric.engine.lifecycle.create_execution import MAX_PAYLOAD
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.restart_attempt import RestartedAttempt, restart_attempt
from flowfabric.errors import Refusal, ValidationError, invalid_input
from flowfabric.ids import ExecutionId, check_name

# What is kept gets a number below those of before. A number that this statement frees is
# not used again by it: the order in which its parts write is not known.
RESTART_EXECUTION: Final[LiteralString] = """
-- journal.restart_execution
WITH consumed AS (    -- signals that an entry of this journal has consumed stay consumed
    UPDATE ff.signal_inbox i SET consumed = true FROM ff.journal j
     WHERE (j.partition_key, j.execution_id) = (%(partition_key)s, %(execution_id)s)
       AND i.partition_key = ANY (ARRAY[j.partition_key])
       AND (i.execution_id, i.signal_seq) = (j.execution_id, j.signal_seq)
), dropped AS (
    DELETE FROM ff.journal
     WHERE (partition_key, execution_id) = (%(partition_key)s, %(execution_id)s)
       AND seq <> 0 AND seq <> ALL (%(armed)s::integer[])
), carried AS (
    UPDATE ff.journal j SET seq = %(lowest)s::integer - kept.number
      FROM unnest(%(armed_now)s::integer[]) WITH ORDINALITY AS kept (seq, number)
     WHERE (j.partition_key, j.execution_id) = (%(partition_key)s, %(execution_id)s)
       AND j.seq = kept.seq
)
INSERT INTO ff.journal (
       partition_key, seq, execution_id, attempt_index, started_at_ms, recorded_at_ms, kind, state,
       name, encoding, value)
VALUES (%(partition_key)s, 0, %(execution_id)s, %(attempt_index)s, ff.now_ms(), ff.now_ms(),
        'mark', 'done', 'mark', 'json', %(mark)s)
    ON CONFLICT (partition_key, execution_id, seq) DO UPDATE
   SET attempt_index = EXCLUDED.attempt_index, started_at_ms = EXCLUDED.started_at_ms,
       recorded_at_ms = EXCLUDED.recorded_at_ms, value = EXCLUDED.value
"""


class RestartedExecution(msgspec.Struct, frozen=True, kw_only=True):
    """The execution is claimable, as the next attempt, with its new arguments and no entries."""

    execution_id: ExecutionId
    generation: int
    """How often the handler began with an empty journal again."""
    repeated: bool = False


async def restart_execution(
    conn: Connection, lease: Lease, *, payload: bytes, payload_encoding: str | None = None
) -> RestartedExecution | Refusal:
    """The attempt ends as restarted, and the next one begins with `payload`; needs a transaction.

    The journal has only a mark, with the next generation, and the compensations that are armed.
    Those have negative numbers: the keys of their calls can be used again. Signals that were
    consumed stay consumed, and the others are kept; waitpoints are closed. A call that the same
    holder repeats after a lost answer changes nothing. Raises `ValidationError` for a payload
    that cannot be stored.
    """
    _check_payload(payload, payload_encoding)
    answer = await restart_attempt(conn, lease, payload=payload, payload_encoding=payload_encoding)
    if not isinstance(answer, RestartedAttempt):
        return answer
    execution_id = lease.execution_id
    kept = (await kept_entries(conn, [execution_id]))[execution_id]
    if answer.repeated:
        return RestartedExecution(
            execution_id=execution_id, generation=kept.generation, repeated=True
        )
    generation = kept.generation + 1
    armed = [each.seq for each in kept.armed]
    await execute(
        conn,
        RESTART_EXECUTION,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        attempt_index=lease.attempt_index,
        armed=armed,
        armed_now=[seq for seq in armed if seq > 0],
        lowest=min([0, *(each.seq for each in kept.compensations)]),
        mark=Mark(generation).encode(),
    )
    return RestartedExecution(execution_id=execution_id, generation=generation)


def _check_payload(payload: object, payload_encoding: str | None) -> None:
    if type(payload) is not bytes:
        raise invalid_input("payload", None, f"must be bytes, not {type(payload).__name__}")
    if len(payload) > MAX_PAYLOAD:
        raise ValidationError(
            "payload_too_large", f"payload {len(payload)} bytes is over {MAX_PAYLOAD}"
        )
    if payload_encoding is not None:
        check_name(payload_encoding, field="payload_encoding")
