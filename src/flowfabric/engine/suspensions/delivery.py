"""A signal with the options of its delivery, checked before anything is read or written."""

from __future__ import annotations

from datetime import timedelta
from typing import Final
from uuid import UUID

import msgspec

from flowfabric.conditions import MAX_NAME
from flowfabric.engine.suspensions.waitpoint import StoredSignal
from flowfabric.errors import invalid_input
from flowfabric.ids import check_name, check_text, check_type, new_uuid, storable_text
from flowfabric.policy import milliseconds

DEDUP_TTL: Final = timedelta(days=1)
SIGNAL_MAXLEN: Final = 1000
"""How many signals a waitpoint keeps, unless the caller says otherwise."""
_MOST: Final = 2**31 - 1
_LONG: Final = 1024


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """The signal, whose time is set once it is accepted; no idempotency key if none is used."""

    signal: StoredSignal
    payload_size: int
    idempotency_key: str | None
    dedup_ttl_ms: int
    resume_delay_ms: int | None
    max_signals: int | None
    signal_maxlen: int


def new_delivery(
    *,
    signal_id: UUID | None,
    signal_name: str,
    signal_category: str,
    source_type: str,
    source_identity: str,
    correlation_id: str,
    payload: bytes | None,
    encoding: str | None,
    idempotency_key: str | None,
    dedup_ttl: float | timedelta,
    resume_delay: float | timedelta | None,
    max_signals_per_execution: int | None,
    signal_maxlen: int,
) -> Delivery:
    """The delivery, if it can be stored; raises `ValidationError(invalid_input)`."""
    if payload is not None and not _is_bytes(payload):
        raise invalid_input("payload", type(payload).__name__, "must be bytes")
    if signal_id is not None:
        check_type(signal_id, UUID, field="signal_id")
    signal = StoredSignal(
        signal_id=signal_id or new_uuid(),
        signal_name=_check_signal_name(signal_name),
        signal_category=check_text(signal_category, field="signal_category"),
        source_type=check_text(source_type, field="source_type"),
        source_identity=_check_optional(source_identity, "source_identity"),
        correlation_id=_check_optional(correlation_id, "correlation_id"),
        accepted_at=0,
        payload_hex=None if payload is None else payload.hex(),
        encoding=None if encoding is None else check_text(encoding, field="encoding"),
    )
    most = max_signals_per_execution
    if most is not None:
        _check_count(most, "max_signals_per_execution", least=0)
    dedup_ttl_ms = milliseconds(dedup_ttl, field="dedup_ttl")
    key = _check_optional(idempotency_key or "", "idempotency_key")
    return Delivery(
        signal=signal,
        payload_size=0 if payload is None else len(payload),
        idempotency_key=key if key and dedup_ttl_ms > 0 else None,
        dedup_ttl_ms=dedup_ttl_ms,
        resume_delay_ms=_check_delay(resume_delay),
        max_signals=most,
        signal_maxlen=_check_count(signal_maxlen, "signal_maxlen", least=1),
    )


def _check_optional(value: str, field: str) -> str:
    """The text, if it is empty or can be stored."""
    if not storable_text(value, field=field):
        return value
    return check_text(value, field=field, at_most=_LONG)


def _check_signal_name(name: str) -> str:
    check_text(name, field="signal_name", at_most=MAX_NAME)
    return check_name(name, field="signal_name")


def _check_count(value: int, field: str, *, least: int) -> int:
    if type(value) is not int or not least <= value <= _MOST:
        raise invalid_input(field, value, f"must be a whole number of at least {least}")
    return value


def _check_delay(delay: float | timedelta | None) -> int | None:
    delay_ms = None if delay is None else milliseconds(delay, field="resume_delay")
    if delay_ms is not None and delay_ms < 0:
        raise invalid_input("resume_delay", delay, "must not be negative")
    return delay_ms


def _is_bytes(value: object) -> bool:
    return isinstance(value, bytes)
