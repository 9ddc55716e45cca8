"""An outsider with the token of a waitpoint signals an execution, which may resume by it."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_all
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.resume import Resume, resume
from flowfabric.engine.suspensions.delivery import (
    DEDUP_TTL,
    SIGNAL_MAXLEN,
    Delivery,
    new_delivery,
)
from flowfabric.engine.suspensions.evaluate_delivery import (
    LockedWaitpoint,
    evaluate_delivery,
    refusal,
)
from flowfabric.engine.suspensions.signal_answers import SignalAccepted, SignalDuplicate
from flowfabric.engine.suspensions.signal_events import NewSignalEvent, record_signal_events
from flowfabric.engine.suspensions.verify_waitpoint_token import verify_waitpoint_token
from flowfabric.engine.suspensions.waitpoint import encode_signals
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId, check_type
from flowfabric.states import SignalEffect
from flowfabric.tokens import WaitpointToken

# The execution is locked by an earlier statement. The rows are locked too: a sweep that closes an
# expired waitpoint does not lock the execution. The signals of a pending waitpoint are not needed;
# those of one that an operator closed came in time, and count.
MEET: Final[LiteralString] = """
-- suspensions.deliver_signal: the waitpoint, and the others of its suspension
SELECT w.waitpoint_id, w.waitpoint_key, w.state,
       w.state = 'pending' AND coalesce(w.expires_at_ms <= ff.now_ms(), false) AS expired,
       jsonb_array_length(w.signals) AS kept,
       CASE WHEN w.state = 'active' OR w.suspension_id = s.suspension_id
            THEN w.signals END AS signals,
       s.condition,
       ff.policy_number(s.resume_policy -> 'resume_delay_ms', 3153600000000) AS resume_delay_ms,
       e.lifecycle_phase,
       CASE e.terminal_outcome WHEN 'success' THEN 'completed' ELSE e.terminal_outcome END
           AS ended_as,
       coalesce(ff.policy_number(b.policy -> 'max_signals_per_execution', 2147483647), 10000)
           AS max_signals,
       e.signal_seq + (SELECT sum(c.signal_count) FROM ff.waitpoint_pending c
                        WHERE c.execution_id = e.execution_id
                          AND c.partition_key = e.partition_key)::bigint AS recorded,
       (SELECT d.signal_id FROM ff.signal_dedup d
         WHERE (d.partition_key, d.waitpoint_id, d.idempotency_key)
             = (%(partition_key)s, %(waitpoint_id)s, %(idempotency_key)s::text)
           AND d.expires_at_ms > ff.now_ms()) AS existing_signal_id,
       ff.now_ms() AS now_ms
  FROM ff.waitpoint_pending w
  JOIN ff.exec_core e ON (e.partition_key, e.execution_id) = (w.partition_key, w.execution_id)
  JOIN ff.exec_body b ON (b.partition_key, b.execution_id) = (w.partition_key, w.execution_id)
  LEFT JOIN ff.suspension_current s
    ON (s.partition_key, s.execution_id) = (w.partition_key, w.execution_id)
   AND s.closed_at_ms IS NULL
 WHERE w.execution_id = %(execution_id)s AND w.partition_key = %(partition_key)s
   AND (w.waitpoint_id = %(waitpoint_id)s OR w.state = 'active'
        OR w.suspension_id = s.suspension_id)
 ORDER BY w.waitpoint_id FOR NO KEY UPDATE OF w
"""

STORE: Final[LiteralString] = """
-- suspensions.deliver_signal: the signal, and its idempotency key
WITH remembered AS (
    INSERT INTO ff.signal_dedup (
           partition_key, waitpoint_id, idempotency_key, signal_id, execution_id, expires_at_ms)
    SELECT %(partition_key)s::smallint, %(waitpoint_id)s::uuid, %(idempotency_key)s::text,
           %(signal_id)s::uuid, %(execution_id)s::uuid, ff.now_ms() + %(dedup_ttl_ms)s::bigint
     WHERE %(idempotency_key)s::text IS NOT NULL
        ON CONFLICT (partition_key, waitpoint_id, idempotency_key) DO UPDATE
       SET signal_id = EXCLUDED.signal_id, expires_at_ms = EXCLUDED.expires_at_ms
)
UPDATE ff.waitpoint_pending w
   SET signal_count = w.signal_count + 1, last_signal_at_ms = %(accepted_at)s::bigint,
       signals = CASE WHEN cardinality(%(dropped)s::bigint[]) = 0
                      THEN w.signals || %(signal)s::jsonb
                      ELSE (SELECT coalesce(jsonb_agg(kept.signal ORDER BY kept.place), '[]')
                              FROM jsonb_array_elements(w.signals || %(signal)s::jsonb)
                                   WITH ORDINALITY AS kept (signal, place)
                             WHERE kept.place - 1 <> ALL (%(dropped)s::bigint[])) END
 WHERE (w.partition_key, w.waitpoint_id) = (%(partition_key)s, %(waitpoint_id)s)
"""


async def deliver_signal(
    conn: Connection,
    execution_id: ExecutionId,
    waitpoint_id: UUID,
    token: WaitpointToken | str,
    signal_name: str,
    *,
    signal_id: UUID | None = None,
    signal_category: str = "signal",
    source_type: str = "external",
    source_identity: str = "",
    payload: bytes | None = None,
    encoding: str | None = None,
    correlation_id: str = "",
    idempotency_key: str | None = None,
    dedup_ttl: float | timedelta = DEDUP_TTL,
    resume_delay: float | timedelta | None = None,
    max_signals_per_execution: int | None = None,
    signal_maxlen: int = SIGNAL_MAXLEN,
) -> SignalAccepted | SignalDuplicate:
    """The signal is stored on its waitpoint; if it satisfies the condition, the execution resumes.

    A pending waitpoint buffers the signal for the suspension that will use it. The execution
    resumes after `resume_delay`, or if that is None after the delay of its suspension. At most
    `signal_maxlen` signals are kept: the oldest that do not count go first. Needs a transaction.

    Raises, in this order: `ValidationError(invalid_input)` for the arguments; what
    `verify_waitpoint_token` raises; `TargetNotSignalable` if the execution has ended;
    `WaitpointClosed`, also if the waitpoint has expired; `ValidationError(payload_too_large)`;
    `ValidationError(signal_limit_exceeded)` if the execution has had `max_signals_per_execution`
    signals (None: as its policy says; 0: no limit). A repeated `idempotency_key` is a
    `SignalDuplicate` for `dedup_ttl`.
    """
    check_type(waitpoint_id, UUID, field="waitpoint_id")
    delivery = new_delivery(
        signal_id=signal_id,
        signal_name=signal_name,
        signal_category=signal_category,
        source_type=source_type,
        source_identity=source_identity,
        correlation_id=correlation_id,
        payload=payload,
        encoding=encoding,
        idempotency_key=idempotency_key,
        dedup_ttl=dedup_ttl,
        resume_delay=resume_delay,
        max_signals_per_execution=max_signals_per_execution,
        signal_maxlen=signal_maxlen,
    )
    await verify_waitpoint_token(conn, execution_id, waitpoint_id, token)
    return await accept_signal(conn, execution_id, waitpoint_id, delivery)


async def accept_signal(
    conn: Connection, execution_id: ExecutionId, waitpoint_id: UUID, delivery: Delivery
) -> SignalAccepted | SignalDuplicate:
    """The signal of a caller that may send it is refused, a duplicate, or stored.

    The waitpoint exists and is one of this execution.
    """
    if not await lock_executions(conn, [execution_id]):
        raise NotFound("execution", execution_id)
    target: dict[str, object] = {
        "partition_key": execution_id.partition_key,
        "execution_id": execution_id.uuid,
        "waitpoint_id": waitpoint_id,
        "idempotency_key": delivery.idempotency_key,
    }
    locked = {
        row.waitpoint_id: row for row in await fetch_all(conn, MEET, LockedWaitpoint, **target)
    }
    waitpoint = locked.pop(waitpoint_id)
    refused = refusal(execution_id, waitpoint, delivery)
    if refused is not None:
        raise refused
    if waitpoint.existing_signal_id is not None:
        return SignalDuplicate(existing_signal_id=waitpoint.existing_signal_id)
    signal = msgspec.structs.replace(delivery.signal, accepted_at=waitpoint.now_ms)
    done = evaluate_delivery(
        waitpoint, list(locked.values()), signal, signal_maxlen=delivery.signal_maxlen
    )
    await execute(
        conn,
        STORE,
        signal_id=signal.signal_id,
        dedup_ttl_ms=delivery.dedup_ttl_ms,
        accepted_at=signal.accepted_at,
        signal=msgspec.json.encode(signal).decode(),
        dropped=list(done.dropped),
        **target,
    )
    event = NewSignalEvent(
        execution_id=execution_id,
        signal_id=signal.signal_id,
        waitpoint_id=waitpoint_id,
        signal_name=signal.signal_name,
        effect=done.effect,
        source_type=signal.source_type,
        source_identity=signal.source_identity,
    )
    await record_signal_events(conn, [event])
    if done.effect is SignalEffect.RESUME_CONDITION_SATISFIED:
        given_ms, policy_ms = delivery.resume_delay_ms, waitpoint.resume_delay_ms
        resumed = Resume(
            execution_id=execution_id,
            delay=((policy_ms if given_ms is None else given_ms) or 0) / 1000,
            closer_signal_id=signal.signal_id,
            satisfiers=encode_signals(done.satisfiers),
        )
        await resume(conn, [resumed])
    return SignalAccepted(signal_id=signal.signal_id, effect=done.effect, match=done.match)
