"""Signals are sent to executions by name: each waits in the inbox of its execution until consumed.

The senders are trusted: clients, operators and other handlers. An outsider signals a waitpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, LiteralString, NamedTuple
from uuid import UUID

import msgspec

from flowfabric.conditions import MAX_NAME
from flowfabric.db.rows import Connection, execute, fetch_all
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.number_signals import number_signals
from flowfabric.engine.lifecycle.resume import Resume, resume
from flowfabric.engine.lifecycle.sql.by_key import open_suspension
from flowfabric.engine.suspensions.evaluate_delivery import MAX_PAYLOAD
from flowfabric.engine.suspensions.signal_answers import SignalAccepted, SignalDuplicate
from flowfabric.engine.suspensions.signal_events import (
    EVENTS_RECORDED,
    NewSignalEvent,
    event_columns,
)
from flowfabric.errors import (
    EngineError,
    NotFound,
    TargetNotSignalable,
    ValidationError,
    invalid_input,
)
from flowfabric.ids import (
    ExecutionId,
    check_is_text,
    check_text,
    check_type,
    new_uuid,
    storable_text,
)
from flowfabric.states import LifecyclePhase, SignalEffect

MAX_SIGNALS: Final = 1000
"""How many signals one call takes."""
_SMALL: Final = 2**15

# The executions are locked by a statement before this one: a signal or a suspend that it waited for
# has changed what is read here.
READ_TARGETS: Final[LiteralString] = f"""
-- suspensions.send_signals: the executions under their locks, and what the same keys have sent
SELECT given.ordinal, e.lifecycle_phase, e.ended_as, e.signal_seq, e.max_signals,
       s.awaits_signals, coalesce(s.delay_ms, 0) AS delay_ms, sent.signal_id AS existing
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[],
              %(idempotency_key)s::text[]) WITH ORDINALITY
       AS given (partition_key, execution_id, idempotency_key, ordinal)
 CROSS JOIN LATERAL (  -- by key, also if the plan is made while the tables are empty
       SELECT c.lifecycle_phase, c.signal_seq,
              CASE c.terminal_outcome WHEN 'success' THEN 'completed' ELSE c.terminal_outcome END
                  AS ended_as,
              coalesce(ff.policy_number(b.policy -> 'max_signals_per_execution', 2147483647), 10000)
                  AS max_signals
         FROM ff.exec_core c JOIN ff.exec_body b USING (partition_key, execution_id)
        WHERE (c.partition_key, c.execution_id) = (given.partition_key, given.execution_id)
       OFFSET 0) AS e
  LEFT JOIN LATERAL (
       SELECT s.awaits_signals,
              ff.policy_number(s.resume_policy -> 'resume_delay_ms', 3153600000000) AS delay_ms
         FROM ff.suspension_current s
        WHERE {open_suspension("given.partition_key", "given.execution_id")}
       OFFSET 0) AS s ON e.lifecycle_phase = 'suspended'
  LEFT JOIN LATERAL (
       SELECT i.signal_id FROM ff.signal_inbox i
        WHERE (i.partition_key, i.execution_id, i.idempotency_key)
            = (given.partition_key, given.execution_id, given.idempotency_key)
       OFFSET 0) AS sent ON given.idempotency_key IS NOT NULL
"""

STORE_SIGNALS: Final[LiteralString] = (
    """
-- suspensions.send_signals
WITH stored AS (
    INSERT INTO ff.signal_inbox (
           partition_key, signal_seq, execution_id, signal_id, accepted_at_ms, signal_name,
           source_type, source_identity, correlation_id, idempotency_key, encoding, payload)
    SELECT partition_key, signal_seq, execution_id, signal_id, ff.now_ms(), signal_name,
           source_type, source_identity, correlation_id, idempotency_key, encoding, payload
      FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[],
                  %(signal_seq)s::integer[], %(signal_id)s::uuid[], %(signal_name)s::text[],
                  %(payload)s::bytea[], %(encoding)s::text[], %(source_type)s::text[],
                  %(source_identity)s::text[], %(correlation_id)s::text[],
                  %(idempotency_key)s::text[])
           AS given (partition_key, execution_id, signal_seq, signal_id, signal_name, payload,
                     encoding, source_type, source_identity, correlation_id, idempotency_key)
)"""
    + EVENTS_RECORDED
)


class NewSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal to one execution; fields other than name and payload are checked when it is made.

    Of several signals with one `idempotency_key` the execution gets the first; an empty key is
    none. Raises `ValidationError(invalid_input)`.
    """

    execution_id: ExecutionId
    signal_name: str
    payload: bytes | None = None
    encoding: str | None = None
    source_type: str = "client"
    source_identity: str = ""
    correlation_id: str = ""
    idempotency_key: str | None = None
    signal_id: UUID = msgspec.field(default_factory=new_uuid)

    def __post_init__(self) -> None:
        check_is_text(self.signal_name, field="signal_name")
        if self.payload is not None:
            check_type(self.payload, bytes, field="payload")
        check_type(self.signal_id, UUID, field="signal_id")
        check_text(self.source_type, field="source_type")
        for field in ("source_identity", "correlation_id"):
            _check_short(getattr(self, field), field=field)
        if self.encoding is not None:
            check_text(self.encoding, field="encoding")
        if self.idempotency_key:
            check_text(self.idempotency_key, field="idempotency_key", at_most=1024)
        else:
            msgspec.structs.force_setattr(self, "idempotency_key", None)


SignalAnswer = SignalAccepted | SignalDuplicate


class _Target(msgspec.Struct, frozen=True):
    ordinal: int
    lifecycle_phase: str
    ended_as: str
    signal_seq: int
    max_signals: int
    awaits_signals: list[str] | None
    delay_ms: int
    existing: UUID | None


async def send_signal(conn: Connection, signal: NewSignal) -> SignalAnswer:
    """The signal is in the inbox of its execution, and a handler that waits for it goes on.

    Needs a transaction. Raises the first that applies: `NotFound`, `TargetNotSignalable` if the
    execution has ended, and `ValidationError` for a name that is not 1 to 128 printable bytes
    (`invalid_input`), a payload of more than 64 KiB (`payload_too_large`), or an execution that has
    got as many signals as its policy's `max_signals_per_execution` (10,000; 0: any number) allows
    (`signal_limit_exceeded`).
    """
    [answer] = await send_signals(conn, [signal])
    if isinstance(answer, EngineError):
        raise answer
    return answer


async def send_signals(
    conn: Connection, signals: Sequence[NewSignal]
) -> list[SignalAnswer | EngineError]:
    """As `send_signal` for at most 1,000 signals, with what that raises as answers.

    The answers come in the order given, and the signals of one execution arrive in that order.
    Raises `ValidationError(invalid_input)` for more signals.
    """
    if len(signals) > MAX_SIGNALS:
        raise invalid_input("signals", len(signals), f"must be at most {MAX_SIGNALS}")
    targets = await _read_targets(conn, signals)
    batch = _Batch()
    answers = [batch.decide(signal, targets.get(at)) for at, signal in enumerate(signals)]
    if batch.accepted:
        await _store(conn, batch)
        await resume(conn, batch.resumes())
    return answers


class _Accepted(NamedTuple):
    signal: NewSignal
    number: int
    """Which one it is in the inbox of its execution."""
    effect: SignalEffect


class _Batch:
    """What the signals that were looked at so far will change."""

    def __init__(self) -> None:
        self.accepted: list[_Accepted] = []
        self.counts: Counter[ExecutionId] = Counter()
        self._resumed: dict[ExecutionId, tuple[NewSignal, _Target]] = {}
        self._keys: dict[tuple[ExecutionId, str], UUID] = {}

    def decide(self, signal: NewSignal, target: _Target | None) -> SignalAnswer | EngineError:
        """The answer to the next signal."""
        each = signal.execution_id
        if target is None:
            return NotFound("execution", each)
        if target.lifecycle_phase == LifecyclePhase.TERMINAL:
            return TargetNotSignalable(each, target.ended_as)
        fault = _fault(signal)
        if fault is not None:
            return fault
        if 0 < target.max_signals <= target.signal_seq + self.counts[each]:
            return ValidationError(
                "signal_limit_exceeded",
                f"execution {each} has got {target.max_signals} signals, which is its limit",
            )
        existing = target.existing
        if signal.idempotency_key is not None:
            key = (each, signal.idempotency_key)
            existing = existing or self._keys.get(key)
            self._keys.setdefault(key, signal.signal_id)
        if existing is not None:
            return SignalDuplicate(existing_signal_id=existing)
        return self._accept(signal, target)

    def _accept(self, signal: NewSignal, target: _Target) -> SignalAccepted:
        each = signal.execution_id
        resumes = each not in self._resumed and signal.signal_name in (target.awaits_signals or ())
        if resumes:
            self._resumed[each] = (signal, target)
        accepted = SignalAccepted(
            signal_id=signal.signal_id,
            effect=SignalEffect.RESUME_CONDITION_SATISFIED
            if resumes
            else SignalEffect.BUFFERED_IN_INBOX,
        )
        self.counts[each] += 1
        number = target.signal_seq + self.counts[each]
        self.accepted.append(_Accepted(signal, number, accepted.effect))
        return accepted

    def resumes(self) -> list[Resume]:
        """The executions that waited for one of the signals; all of theirs are counted with it."""
        return [
            Resume(
                execution_id=each,
                delay=target.delay_ms / 1000,
                closer_signal_id=signal.signal_id,
                satisfiers="[]",
                signals=self.counts[each],
            )
            for each, (signal, target) in self._resumed.items()
        ]

    def not_resumed(self) -> dict[ExecutionId, int]:
        """How many signals the other executions get."""
        return {each: n for each, n in self.counts.items() if each not in self._resumed}


async def _read_targets(conn: Connection, signals: Sequence[NewSignal]) -> dict[int, _Target]:
    """The locked execution of each signal, by the place of the signal."""
    named = {each.execution_id for each in signals}
    storable = [each for each in named if 0 <= each.partition_key < _SMALL]
    locked = await lock_executions(conn, storable) if storable else []
    found = set(locked)
    places = [at for at, each in enumerate(signals) if each.execution_id in found]
    if not places:
        return {}
    rows = await fetch_all(
        conn,
        READ_TARGETS,
        _Target,
        partition_key=[signals[at].execution_id.partition_key for at in places],
        execution_id=[signals[at].execution_id.uuid for at in places],
        idempotency_key=[signals[at].idempotency_key for at in places],
    )
    return {places[row.ordinal - 1]: row for row in rows}


async def _store(conn: Connection, batch: _Batch) -> None:
    """The accepted signals are stored, with one event each, and counted for who is not resumed."""
    others = batch.not_resumed()
    if others:
        await number_signals(conn, others)
    events = [
        NewSignalEvent(
            execution_id=signal.execution_id,
            signal_id=signal.signal_id,
            signal_name=signal.signal_name,
            effect=effect,
            source_type=signal.source_type,
            source_identity=signal.source_identity,
        )
        for signal, _, effect in batch.accepted
    ]
    signals = [each.signal for each in batch.accepted]
    await execute(
        conn,
        STORE_SIGNALS,
        signal_seq=[each.number for each in batch.accepted],
        payload=[each.payload for each in signals],
        encoding=[each.encoding for each in signals],
        correlation_id=[each.correlation_id for each in signals],
        idempotency_key=[each.idempotency_key for each in signals],
        **event_columns(events),
    )


def _fault(signal: NewSignal) -> ValidationError | None:
    """What is wrong with the name or the payload; None if nothing is."""
    try:
        check_text(signal.signal_name, field="signal_name", at_most=MAX_NAME)
    except ValidationError as error:
        return error
    if not signal.signal_name.isprintable():
        return invalid_input(
            "signal_name", signal.signal_name, "must not contain control or invisible characters"
        )
    if signal.payload is not None and len(signal.payload) > MAX_PAYLOAD:
        return ValidationError(
            "payload_too_large",
            f"payload of {len(signal.payload)} bytes must be at most {MAX_PAYLOAD} bytes",
            field="payload",
        )
    return None


def _check_short(value: str, *, field: str) -> None:
    storable_text(value, field=field)
    if len(value.encode()) > 1024:
        raise invalid_input(field, value[:40] + "…", "must be at most 1024 bytes")
