"""The kinds of conditions, and the signals that conditions are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias, TypeVar
from uuid import UUID

import msgspec

Distinct: TypeAlias = Literal["waitpoints", "signals", "sources"]
Match: TypeAlias = Literal["matched", "duplicate_satisfier", "matcher_failed", "not_in_condition"]
"""How a signal relates to a condition."""


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal as handlers and observers see it; `payload` is decoded by its `encoding`."""

    signal_id: UUID
    signal_name: str
    signal_category: str
    source_type: str
    source_identity: str
    correlation_id: str
    accepted_at: datetime
    payload: bytes | None
    encoding: str | None


class Single(msgspec.Struct, frozen=True):
    """A signal with that name has arrived on the waitpoint; without a name, any signal."""

    waitpoint_key: str
    name: str | None = None


class OperatorOnly(msgspec.Struct, frozen=True):
    """No signal satisfies it: an operator resumes the execution."""


class TimeoutOnly(msgspec.Struct, frozen=True):
    """No signal satisfies it: the timeout decides."""


class AllConditions(msgspec.Struct, frozen=True):
    """Every member is satisfied."""

    members: tuple[Condition, ...]


class CountOf(msgspec.Struct, frozen=True):
    """At least `n` signals of that name have arrived on these waitpoints.

    `distinct` says what is counted: waitpoints that have one, signals by id, or their sources.
    Without a name, any signal counts.
    """

    n: int
    waitpoints: tuple[str, ...]
    distinct: Distinct = "waitpoints"
    name: str | None = None


class AnyCondition(msgspec.Struct, frozen=True):
    """At least one member is satisfied; for handlers, at the root of a condition only."""

    members: tuple[Condition, ...]


class UnknownCondition(msgspec.Struct, frozen=True):
    """A stored condition that this version does not know; it is never satisfied."""

    json: str


Condition: TypeAlias = (
    Single | OperatorOnly | TimeoutOnly | AllConditions | CountOf | AnyCondition | UnknownCondition
)


class Received(Protocol):
    """What is looked at in a signal that has arrived; `accepted_at` is only compared."""

    @property
    def signal_id(self) -> UUID: ...
    @property
    def signal_name(self) -> str: ...
    @property
    def source_type(self) -> str: ...
    @property
    def source_identity(self) -> str: ...
    @property
    def accepted_at(self) -> Any: ...


S = TypeVar("S", bound=Received)
Signals: TypeAlias = Mapping[str, Sequence[S]]
"""The signals of each waitpoint, by its key, in the order of their arrival."""
