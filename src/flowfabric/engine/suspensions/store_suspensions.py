"""Suspensions are stored with their waitpoints, and with the answers that a repeated call gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.conditions import encode_condition, required_names
from flowfabric.db.rows import Connection, execute
from flowfabric.engine.suspensions.suspension import Fresh, SuspendRequest, WaitpointDetails
from flowfabric.engine.suspensions.waitpoint import StoredSignal, encode_signals
from flowfabric.ids import id_columns
from flowfabric.instants import epoch_ms
from flowfabric.tokens import parse_token

# A waitpoint that a handler keeps has its own expiry, which outlives the suspension.
STORE_SUSPENSIONS: Final[LiteralString] = """
-- suspensions.store_suspensions
WITH given AS (
    SELECT * FROM unnest(
               %(partition_key)s::smallint[], %(execution_id)s::uuid[],
               %(attempt_index)s::integer[], %(suspension_id)s::uuid[],
               %(timeout_at_ms)s::bigint[], %(timeout_behavior)s::text[], %(reason_code)s::text[],
               %(requested_by)s::text[], %(pointer)s::text[],
               %(keeps_waitpoints)s::boolean[], %(awaits_signals)s::text[],
               %(awaits_joins)s::text[], %(condition)s::text[], %(resume_policy)s::text[],
               %(close_reason)s::text[], %(closer)s::uuid[], %(satisfiers)s::text[],
               %(idempotency_key)s::text[], %(outcome)s::text[]) WITH ORDINALITY
        AS given (partition_key, execution_id, attempt_index, suspension_id, timeout_at_ms,
                  timeout_behavior, reason_code, requested_by, pointer, keeps_waitpoints,
                  awaits_signals, awaits_joins, condition, resume_policy, close_reason, closer,
                  satisfiers, idempotency_key, outcome, ordinal)
), stored AS (        -- in place of the last suspension of the execution, which is closed
    INSERT INTO ff.suspension_current (
           partition_key, attempt_index, execution_id, suspension_id, suspended_at_ms,
           timeout_at_ms, satisfied_at_ms, closed_at_ms, closer_signal_id, timeout_behavior,
           reason_code, requested_by, close_reason, continuation_metadata_pointer,
           keeps_waitpoints, awaits_signals, awaits_joins, condition, resume_policy,
           all_satisfier_signals)
    SELECT partition_key, attempt_index, execution_id, suspension_id, ff.now_ms(),
           CASE WHEN close_reason IS NULL THEN timeout_at_ms END,
           CASE WHEN satisfiers IS NOT NULL THEN ff.now_ms() END,
           CASE WHEN close_reason IS NOT NULL THEN ff.now_ms() END, closer, timeout_behavior,
           reason_code, requested_by, close_reason, pointer, keeps_waitpoints,
           ARRAY(SELECT jsonb_array_elements_text(awaits_signals::jsonb)),
           ARRAY(SELECT jsonb_array_elements_text(awaits_joins::jsonb)::uuid),
           condition::jsonb, resume_policy::jsonb, satisfiers::jsonb
      FROM given
        ON CONFLICT (partition_key, execution_id) DO UPDATE
       SET attempt_index = EXCLUDED.attempt_index, suspension_id = EXCLUDED.suspension_id,
           suspended_at_ms = EXCLUDED.suspended_at_ms, timeout_at_ms = EXCLUDED.timeout_at_ms,
           satisfied_at_ms = EXCLUDED.satisfied_at_ms, closed_at_ms = EXCLUDED.closed_at_ms,
           closer_signal_id = EXCLUDED.closer_signal_id,
           timeout_behavior = EXCLUDED.timeout_behavior, reason_code = EXCLUDED.reason_code,
           requested_by = EXCLUDED.requested_by, close_reason = EXCLUDED.close_reason,
           continuation_metadata_pointer = EXCLUDED.continuation_metadata_pointer,
           keeps_waitpoints = EXCLUDED.keeps_waitpoints,
           awaits_signals = EXCLUDED.awaits_signals, awaits_joins = EXCLUDED.awaits_joins,
           condition = EXCLUDED.condition, resume_policy = EXCLUDED.resume_policy,
           all_satisfier_signals = EXCLUDED.all_satisfier_signals
), bound AS (         -- the waitpoints, each with its suspension
    SELECT given.partition_key, given.execution_id, given.attempt_index, given.suspension_id,
           given.timeout_at_ms, given.keeps_waitpoints, given.close_reason, w.*,
           ARRAY(SELECT jsonb_array_elements_text(w.names::jsonb)) AS required_signal_names,
           CASE WHEN given.close_reason IS NULL THEN 'active' ELSE 'closed' END AS state,
           CASE WHEN given.close_reason IS NOT NULL THEN ff.now_ms() END AS closed_at_ms
      FROM unnest(%(of)s::bigint[], %(waitpoint_id)s::uuid[], %(waitpoint_key)s::text[],
                  %(token_kid)s::text[], %(token)s::text[], %(names)s::text[],
                  %(fresh)s::boolean[])
           AS w (ordinal, waitpoint_id, waitpoint_key, token_kid, token, names, fresh)
      JOIN given USING (ordinal)
), made AS (
    INSERT INTO ff.waitpoint_pending (
           partition_key, attempt_index, waitpoint_id, execution_id, suspension_id, created_at_ms,
           activated_at_ms, expires_at_ms, closed_at_ms, state, waitpoint_key, token_kid, token,
           close_reason, required_signal_names)
    SELECT partition_key, attempt_index, waitpoint_id, execution_id, suspension_id, ff.now_ms(),
           ff.now_ms(), timeout_at_ms, closed_at_ms, state, waitpoint_key, token_kid, token,
           close_reason, required_signal_names
      FROM bound WHERE fresh
), activated AS (     -- pending ones keep their token and their signals
    UPDATE ff.waitpoint_pending w
       SET state = bound.state, activated_at_ms = ff.now_ms(), closed_at_ms = bound.closed_at_ms,
           close_reason = bound.close_reason, suspension_id = bound.suspension_id,
           attempt_index = bound.attempt_index,
           required_signal_names = bound.required_signal_names,
           expires_at_ms = CASE WHEN bound.keeps_waitpoints THEN w.expires_at_ms
                                ELSE bound.timeout_at_ms END
      FROM bound
     WHERE w.partition_key = ANY (ARRAY[bound.partition_key])
       AND w.waitpoint_id = bound.waitpoint_id AND NOT bound.fresh
)
INSERT INTO ff.suspend_dedup (
       partition_key, execution_id, idempotency_key, outcome, created_at_ms, expires_at_ms)
SELECT partition_key, execution_id, idempotency_key, outcome::jsonb, ff.now_ms(),
       ff.now_ms() + least(timeout_at_ms - ff.now_ms() + 60000, 604800000)
  FROM given WHERE idempotency_key IS NOT NULL
    ON CONFLICT (partition_key, execution_id, idempotency_key) DO UPDATE
   SET outcome = EXCLUDED.outcome, created_at_ms = EXCLUDED.created_at_ms,
       expires_at_ms = EXCLUDED.expires_at_ms
"""


class NewSuspension(msgspec.Struct, frozen=True, kw_only=True):
    """A suspension to store. With a `close_reason` it is closed, and so are its waitpoints."""

    request: SuspendRequest
    waitpoints: tuple[WaitpointDetails, ...]
    """In the order of the bindings."""
    close_reason: str | None = None
    satisfiers: tuple[StoredSignal, ...] = ()
    """The signals that satisfy the condition already."""


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of an answer for a repeated call; the tokens are with the waitpoints."""

    satisfied: bool
    suspension_id: UUID
    waitpoints: tuple[UUID, ...]


async def store_suspensions(conn: Connection, suspensions: Sequence[NewSuspension]) -> None:
    """The suspensions, their waitpoints and the answers are stored.

    The caller holds the locks of the executions, and has looked at their waitpoints under them.
    """
    if not suspensions:
        return
    requests = [each.request for each in suspensions]
    bound = [
        (number, suspension.request, binding, details)
        for number, suspension in enumerate(suspensions, 1)
        for binding, details in zip(suspension.request.bindings, suspension.waitpoints, strict=True)
    ]
    await execute(
        conn,
        STORE_SUSPENSIONS,
        **id_columns([request.lease.execution_id for request in requests]),
        attempt_index=[request.lease.attempt_index for request in requests],
        suspension_id=[request.suspension_id for request in requests],
        timeout_at_ms=[
            None if request.timeout_at is None else epoch_ms(request.timeout_at)
            for request in requests
        ],
        timeout_behavior=[request.timeout_behavior.value for request in requests],
        reason_code=[request.reason.value for request in requests],
        requested_by=[request.requested_by.value for request in requests],
        pointer=[request.continuation_metadata_pointer for request in requests],
        keeps_waitpoints=[request.keeps_waitpoints for request in requests],
        awaits_signals=[_json(request.awaits_signals) for request in requests],
        awaits_joins=[_json(request.awaits_joins) for request in requests],
        condition=[encode_condition(request.condition) for request in requests],
        resume_policy=[request.resume_policy.as_json() for request in requests],
        close_reason=[each.close_reason for each in suspensions],
        closer=[each.satisfiers[-1].signal_id if each.satisfiers else None for each in suspensions],
        satisfiers=[
            encode_signals(each.satisfiers) if each.satisfiers else None for each in suspensions
        ],
        idempotency_key=[request.idempotency_key for request in requests],
        outcome=[_json(_answer(each)) for each in suspensions],
        of=[number for number, _, _, _ in bound],
        waitpoint_id=[details.waitpoint_id for _, _, _, details in bound],
        waitpoint_key=[details.waitpoint_key for _, _, _, details in bound],
        token_kid=[parse_token(details.token).kid for _, _, _, details in bound],
        token=[details.token.reveal() for _, _, _, details in bound],
        names=[
            _json(required_names(request.condition, details.waitpoint_key))
            for _, request, _, details in bound
        ],
        fresh=[isinstance(binding, Fresh) for _, _, binding, _ in bound],
    )


def _answer(suspension: NewSuspension) -> StoredAnswer:
    return StoredAnswer(
        satisfied=bool(suspension.satisfiers),
        suspension_id=suspension.request.suspension_id,
        waitpoints=tuple([each.waitpoint_id for each in suspension.waitpoints]),
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
