"""What the model remembers of signals, journals, waitpoints and suspensions."""

from __future__ import annotations

from uuid import UUID

import msgspec

from flowfabric.conditions import Condition


class Inbox(msgspec.Struct, frozen=True):
    """A signal that was sent by name."""

    signal_id: UUID
    signal_name: str
    idempotency_key: str | None
    accepted_at_ms: int


class Entry(msgspec.Struct, frozen=True):
    """A call of a handler: finished, or a sleep until `due_at_ms`, which is open for ever."""

    name: str
    attempt_index: int
    recorded_at_ms: int
    value: bytes | None
    due_at_ms: int | None = None


class Received(msgspec.Struct, frozen=True):
    """A signal that came with the token of a waitpoint."""

    signal_id: UUID
    signal_name: str
    source: str
    accepted_at_ms: int

    @property
    def line(self) -> str:
        return f"{self.signal_name}/{self.source}/{self.accepted_at_ms}"


class Waitpoint(msgspec.Struct, kw_only=True):
    """Where an outsider may signal; `fresh` until the suspension that makes it is stored."""

    waitpoint_id: UUID
    waitpoint_key: str
    attempt_index: int
    created_at_ms: int
    expires_at_ms: int | None
    state: str = "pending"
    activated_at_ms: int | None = None
    closed_at_ms: int | None = None
    close_reason: str | None = None
    suspension_id: UUID | None = None
    signals: list[Received] = []
    keys: dict[str, tuple[UUID, int]] = {}
    """The signal of each idempotency key, and until when the key stands for it."""
    fresh: bool = False

    def close(self, now_ms: int, reason: str) -> None:
        if self.state != "closed":
            self.state, self.closed_at_ms, self.close_reason = "closed", now_ms, reason


class Suspension(msgspec.Struct, kw_only=True):
    """The last suspension of an execution, open or closed."""

    suspension_id: UUID
    attempt_index: int
    condition: Condition
    behavior: str
    reason_code: str
    keeps: bool
    awaits: tuple[str, ...]
    delay_ms: int
    suspended_at_ms: int
    timeout_at_ms: int | None
    satisfied_at_ms: int | None
    closed_at_ms: int | None
    close_reason: str | None
    satisfiers: list[str]

    def close(self, now_ms: int, reason: str) -> None:
        if self.closed_at_ms is None:
            self.closed_at_ms, self.timeout_at_ms, self.close_reason = now_ms, None, reason
