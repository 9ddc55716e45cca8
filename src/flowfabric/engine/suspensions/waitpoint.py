"""A waitpoint: where an outsider that has its token can signal one execution."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.conditions import Signal
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.states import WaitpointState
from flowfabric.tokens import WaitpointToken

WAITPOINT_COLUMNS: Final[LiteralString] = """w.partition_key, w.execution_id, w.waitpoint_id,
       w.waitpoint_key, w.state, w.token, w.attempt_index, w.suspension_id,
       w.required_signal_names, w.signal_count, w.created_at_ms, w.activated_at_ms,
       w.expires_at_ms, w.closed_at_ms, w.last_signal_at_ms,
       w.last_hmac_validation_failed_at_ms, w.close_reason, w.signals"""
"""The columns of `WaitpointRow`, of `ff.waitpoint_pending w`."""


class StoredSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal as its waitpoint keeps it, in JSON; `accepted_at` is in milliseconds."""

    signal_id: UUID
    signal_name: str
    signal_category: str
    source_type: str
    source_identity: str
    correlation_id: str = ""
    accepted_at: int
    payload_hex: str | None = None
    encoding: str | None = None

    @property
    def payload(self) -> bytes | None:
        return None if self.payload_hex is None else bytes.fromhex(self.payload_hex)

    def signal(self) -> Signal:
        """The signal as handlers and observers see it."""
        return Signal(
            signal_id=self.signal_id,
            signal_name=self.signal_name,
            signal_category=self.signal_category,
            source_type=self.source_type,
            source_identity=self.source_identity,
            correlation_id=self.correlation_id,
            accepted_at=instant(self.accepted_at),
            payload=self.payload,
            encoding=self.encoding,
        )


def encode_signals(signals: Sequence[StoredSignal]) -> str:
    """The signals as a JSON array."""
    return msgspec.json.encode(signals).decode()


def decode_signals(text: str | None) -> list[StoredSignal]:
    """The signals of a JSON array; none if there is no text."""
    return [] if text is None else msgspec.json.decode(text, type=list[StoredSignal])


def decode_schema(text: str | None) -> dict[str, Any] | None:
    """The stored JSON schema of an answer."""
    return None if text is None else msgspec.json.decode(text, type=dict[str, Any])


class Waitpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A waitpoint with its token, and the signals that have arrived, in order.

    `required_signal_names` are those that count for the open suspension; empty means any.
    """

    execution_id: ExecutionId
    waitpoint_id: UUID
    waitpoint_key: str
    state: WaitpointState
    token: WaitpointToken
    attempt_index: int
    suspension_id: UUID | None
    required_signal_names: tuple[str, ...]
    signals: tuple[Signal, ...]
    signal_count: int
    """How many signals were accepted; the oldest may not be kept."""
    created_at: datetime
    activated_at: datetime | None
    expires_at: datetime | None
    closed_at: datetime | None
    last_signal_at: datetime | None
    last_hmac_validation_failed_at: datetime | None
    close_reason: str | None


class WaitpointRow(msgspec.Struct, frozen=True):
    """The stored row: `WAITPOINT_COLUMNS`."""

    partition_key: int
    execution_id: UUID
    waitpoint_id: UUID
    waitpoint_key: str
    state: str
    token: str
    attempt_index: int
    suspension_id: UUID | None
    required_signal_names: list[str]
    signal_count: int
    created_at_ms: int
    activated_at_ms: int | None
    expires_at_ms: int | None
    closed_at_ms: int | None
    last_signal_at_ms: int | None
    last_hmac_validation_failed_at_ms: int | None
    close_reason: str | None
    signals: str

    def __repr__(self) -> str:
        return f"WaitpointRow(waitpoint_id={self.waitpoint_id!r})"

    def waitpoint(self) -> Waitpoint:
        """The waitpoint of this row."""
        return Waitpoint(
            execution_id=ExecutionId(self.partition_key, self.execution_id),
            waitpoint_id=self.waitpoint_id,
            waitpoint_key=self.waitpoint_key,
            state=WaitpointState(self.state),
            token=WaitpointToken(self.token),
            attempt_index=self.attempt_index,
            suspension_id=self.suspension_id,
            required_signal_names=tuple(self.required_signal_names),
            signals=tuple(each.signal() for each in decode_signals(self.signals)),
            signal_count=self.signal_count,
            created_at=instant(self.created_at_ms),
            activated_at=instant(self.activated_at_ms),
            expires_at=instant(self.expires_at_ms),
            closed_at=instant(self.closed_at_ms),
            last_signal_at=instant(self.last_signal_at_ms),
            last_hmac_validation_failed_at=instant(self.last_hmac_validation_failed_at_ms),
            close_reason=self.close_reason,
        )
