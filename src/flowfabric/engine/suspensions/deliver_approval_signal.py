"""An operator approves or rejects: a signal without a token, from a caller that is trusted."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, operator_events
from flowfabric.engine.suspensions.deliver_signal import accept_signal
from flowfabric.engine.suspensions.delivery import DEDUP_TTL, SIGNAL_MAXLEN, new_delivery
from flowfabric.engine.suspensions.signal_answers import SignalAccepted, SignalDuplicate
from flowfabric.errors import NotFound, ValidationError
from flowfabric.ids import ExecutionId, check_lane, check_text, check_type
from flowfabric.states import OperatorEventType

READ_TARGET: Final[LiteralString] = """
-- suspensions.deliver_approval_signal
SELECT r.lane_id, w.waitpoint_id IS NOT NULL AS has_waitpoint
  FROM ff.exec_core e JOIN ff.route r USING (route_id)
  LEFT JOIN ff.waitpoint_pending w
    ON (w.partition_key, w.waitpoint_id, w.execution_id)
     = (e.partition_key, %(waitpoint_id)s::uuid, e.execution_id)
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
"""


class _Target(msgspec.Struct, frozen=True):
    lane_id: str
    has_waitpoint: bool


async def deliver_approval_signal(
    conn: Connection,
    execution_id: ExecutionId,
    waitpoint_id: UUID,
    signal_name: str,
    *,
    lane_id: str,
    idempotency_suffix: str,
    operator_identity: str = "",
    payload: bytes | None = None,
    encoding: str | None = None,
    dedup_ttl: float | timedelta = DEDUP_TTL,
    max_signals_per_execution: int | None = None,
    signal_maxlen: int = SIGNAL_MAXLEN,
    reason: str | None = None,
) -> SignalAccepted | SignalDuplicate:
    """The signal (`approved`, `rejected` or any other) is delivered in the name of an operator.

    It resumes the execution if it satisfies the condition, and is stored otherwise. A repeated name
    and `idempotency_suffix` is a duplicate; any other leaves an operator event. Two operators count
    as two sources if `operator_identity` is given. Needs a transaction.

    Raises `ValidationError(invalid_input)` for the arguments, `NotFound` for the execution,
    `ValidationError(invalid_input)` with `lane_mismatch` if it is on another lane, `NotFound` for
    the waitpoint, then what `deliver_signal` raises after it has verified the token. An operator
    has none, so that an approval is accepted also when the key of the waitpoint is past its grace.
    """
    check_type(waitpoint_id, UUID, field="waitpoint_id")
    check_lane(lane_id)
    check_text(idempotency_suffix, field="idempotency_suffix", at_most=100)
    delivery = new_delivery(
        signal_id=None,
        signal_name=signal_name,
        signal_category="approval",
        source_type="operator",
        source_identity=operator_identity,
        correlation_id="",
        payload=payload,
        encoding=encoding,
        idempotency_key=f"approval:{signal_name}:{idempotency_suffix}",
        dedup_ttl=dedup_ttl,
        resume_delay=None,
        max_signals_per_execution=max_signals_per_execution,
        signal_maxlen=signal_maxlen,
    )
    target = await fetch_maybe(
        conn,
        READ_TARGET,
        _Target,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        waitpoint_id=waitpoint_id,
    )
    if target is None:
        raise NotFound("execution", execution_id)
    if target.lane_id != lane_id:
        why = f"lane_mismatch: lane_id {lane_id!r} is not the execution's, {target.lane_id!r}"
        raise ValidationError("invalid_input", why, field="lane_id")
    if not target.has_waitpoint:
        raise NotFound("waitpoint", waitpoint_id)
    answer = await accept_signal(conn, execution_id, waitpoint_id, delivery)
    if isinstance(answer, SignalAccepted):
        facts = {
            "waitpoint_id": str(waitpoint_id),
            "signal_name": signal_name,
            "signal_id": str(answer.signal_id),
            "effect": answer.effect.value,
        }
        await operator_events(
            conn,
            OperatorEventType.WAITPOINT_ANSWERED,
            {execution_id: facts},
            actor=operator_identity or DEFAULT_ACTOR,
            reason=reason,
        )
    return answer
