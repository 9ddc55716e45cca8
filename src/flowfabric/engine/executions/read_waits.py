"""What a suspended execution waits for, and which execution compensates for one that ended."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.conditions import Condition, decode_condition
from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.ids import ExecutionId, compensation_id
from flowfabric.states import PublicState, SuspensionReason, TimeoutBehavior

READ_SUSPENSION: Final[LiteralString] = """
-- executions.read_suspension
SELECT s.suspended_at_ms, s.timeout_at_ms, s.timeout_behavior, s.reason_code, s.keeps_waitpoints,
       s.awaits_signals, cardinality(s.awaits_joins) AS joins, s.condition,
       (SELECT coalesce(jsonb_agg(jsonb_build_array(
                   w.waitpoint_id, w.waitpoint_key, w.required_signal_names,
                   ARRAY(SELECT jsonb_build_array(
                                s -> 'signal_id', s -> 'signal_name', s -> 'source_type',
                                s -> 'source_identity', s -> 'accepted_at')
                           FROM jsonb_array_elements(w.signals) AS s),
                   w.expires_at_ms, w.close_reason)
                   ORDER BY w.created_at_ms, w.waitpoint_id), '[]')::text
          FROM ff.waitpoint_pending w
         WHERE w.execution_id = s.execution_id AND w.partition_key = s.partition_key
           AND w.suspension_id = s.suspension_id) AS waitpoints,
       (SELECT coalesce(jsonb_object_agg(i.signal_name, i.n), '{}')::text
          FROM (SELECT i.signal_name, count(*) AS n FROM ff.signal_inbox i
                 WHERE (i.partition_key, i.execution_id) = (s.partition_key, s.execution_id)
                   AND NOT i.consumed
                   AND NOT EXISTS (SELECT FROM ff.journal j
                                    WHERE (j.partition_key, j.execution_id, j.signal_seq)
                                        = (i.partition_key, i.execution_id, i.signal_seq))
                 GROUP BY i.signal_name ORDER BY i.signal_name LIMIT 100) AS i) AS inbox
  FROM ff.suspension_current s
 WHERE (s.partition_key, s.execution_id) = (%(partition_key)s, %(execution_id)s)
   AND s.closed_at_ms IS NULL
"""

READ_COMPENSATING: Final[LiteralString] = """
-- executions.read_compensating
SELECT e.compensates, c.public_state
  FROM ff.exec_core e
  LEFT JOIN ff.execution c
    ON (c.partition_key, c.execution_id) = (e.partition_key, %(compensation)s::uuid)
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
"""


class ArrivedSignal(msgspec.Struct, frozen=True, array_like=True):
    """A signal that has come, as far as it decides whether it counts."""

    signal_id: UUID
    signal_name: str
    source_type: str
    source_identity: str
    accepted_at: int


class AwaitedWaitpoint(msgspec.Struct, frozen=True, array_like=True):
    """A waitpoint that an open suspension waits for, with the signals that have come."""

    waitpoint_id: UUID
    waitpoint_key: str
    names: list[str]
    """The names of signals that count; empty means any."""
    signals: list[ArrivedSignal]
    expires_at_ms: int | None
    close_reason: str | None
    """Why it takes no more signals; None while it is open."""


class OpenSuspension(msgspec.Struct, frozen=True, kw_only=True):
    """What a suspended execution waits for."""

    suspended_at_ms: int
    timeout_at_ms: int | None
    behavior: TimeoutBehavior
    reason: SuspensionReason
    is_handler: bool
    """A handler waits: if it is resumed before anything has happened, it waits again."""
    signals: list[str]
    joins: int
    condition: Condition
    waitpoints: list[AwaitedWaitpoint]
    """Those that take signals."""
    closed: list[AwaitedWaitpoint]
    """Those that an operator has closed."""
    inbox: dict[str, int]
    """How many signals of each name wait in the inbox."""


class Compensating(msgspec.Struct, frozen=True):
    """Compensations of an execution that ended: they will start, or an execution makes them."""

    execution_id: ExecutionId
    public_state: PublicState | None
    """None if it has not started."""


class _Suspension(msgspec.Struct, frozen=True):
    suspended_at_ms: int
    timeout_at_ms: int | None
    timeout_behavior: str
    reason_code: str
    keeps_waitpoints: bool
    awaits_signals: list[str]
    joins: int
    condition: str
    waitpoints: str
    inbox: str


class _Compensating(msgspec.Struct, frozen=True):
    compensates: bool
    public_state: str | None


async def read_suspension(conn: Connection, execution_id: ExecutionId) -> OpenSuspension | None:
    """The open suspension of the execution; None if there is none."""
    row = await fetch_maybe(
        conn,
        READ_SUSPENSION,
        _Suspension,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )
    if row is None:
        return None
    waitpoints = msgspec.json.decode(row.waitpoints, type=list[AwaitedWaitpoint])
    return OpenSuspension(
        suspended_at_ms=row.suspended_at_ms,
        timeout_at_ms=row.timeout_at_ms,
        behavior=TimeoutBehavior(row.timeout_behavior),
        reason=SuspensionReason(row.reason_code),
        is_handler=row.keeps_waitpoints,
        signals=row.awaits_signals,
        joins=row.joins,
        condition=decode_condition(row.condition),
        waitpoints=[each for each in waitpoints if each.close_reason is None],
        closed=[each for each in waitpoints if each.close_reason is not None],
        inbox=msgspec.json.decode(row.inbox, type=dict[str, int]),
    )


async def read_compensating(
    conn: Connection, execution_id: ExecutionId, replay_count: int
) -> Compensating | None:
    """The execution that compensates for the last end of this one; None if nothing is armed."""
    compensation = compensation_id(execution_id, replay_count)
    row = await fetch_maybe(
        conn,
        READ_COMPENSATING,
        _Compensating,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        compensation=compensation.uuid,
    )
    if row is None or (row.public_state is None and not row.compensates):
        return None
    state = None if row.public_state is None else PublicState(row.public_state)
    return Compensating(compensation, state)
