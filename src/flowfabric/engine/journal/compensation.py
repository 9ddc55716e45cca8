"""Compensations: the calls that undo what a handler did, and the execution that makes them."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import msgspec

from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.errors import ValidationError, invalid_input
from flowfabric.ids import ExecutionId, check_lane, check_name
from flowfabric.limits import check_limit_key
from flowfabric.policy import ExecutionPolicy, check_capabilities
from flowfabric.states import JournalKind, JournalState

COMPENSATE_KIND: Final = "ff.compensate"
"""The kind of the execution that makes the calls of an execution that ended without success."""
ENCODING: Final = "json"


class CompensationCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call that undoes something, as the journal stores it.

    Checked when it is made: raises `ValidationError`. A policy is the JSON data of an
    `ExecutionPolicy`.
    """

    execution_kind: str
    payload: bytes
    payload_encoding: str | None = None
    lane_id: str = "default"
    priority: int = 0
    required_capabilities: tuple[str, ...] = ()
    policy: dict[str, Any] | None = None
    quota_policy_id: UUID | None = None
    """The limit of its task."""
    limit_key: str | None = None

    def __post_init__(self) -> None:
        check_name(self.execution_kind, field="execution_kind")
        check_lane(self.lane_id)
        if type(self.payload) is not bytes:
            kind = type(self.payload).__name__
            raise invalid_input("payload", None, f"must be bytes, not {kind}")
        if type(self.priority) is not int:
            raise invalid_input("priority", self.priority, "must be a whole number")
        if self.payload_encoding is not None:
            check_name(self.payload_encoding, field="payload_encoding")
        check_capabilities(self.required_capabilities, side="required")
        if self.policy is not None:
            ExecutionPolicy.parse(self.policy)
        if self.limit_key is not None:
            check_limit_key(self.limit_key)

    def encode(self) -> bytes:
        """The value of its entry."""
        return msgspec.json.encode(self)


class CompensationInput(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of an execution of kind `ff.compensate`."""

    execution_id: str
    """The execution that ended without success."""
    replay_count: int
    """How often that execution had been replayed."""
    calls: tuple[CompensationCall, ...]
    """In the order in which they are made: what was armed last comes first."""

    @classmethod
    def decode(cls, payload: bytes) -> CompensationInput:
        """Read a payload; raises `ValidationError(invalid_input)`."""
        try:
            return msgspec.json.decode(payload, type=cls)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise ValidationError(
                "invalid_input", f"payload of {COMPENSATE_KIND}: {error}"
            ) from None


class _StoredInput(msgspec.Struct):
    """A `CompensationInput` of calls that are encoded already."""

    execution_id: str
    replay_count: int
    calls: list[msgspec.Raw]


def compensation_input(execution_id: ExecutionId, replay_count: int, stored: list[bytes]) -> bytes:
    """The payload for these stored calls."""
    return msgspec.json.encode(
        _StoredInput(str(execution_id), replay_count, [msgspec.Raw(each) for each in stored])
    )


def compensation_write(write: EntryWrite, call: CompensationCall | None) -> EntryWrite:
    """The entry that arms `call` or, with None, disarms what was armed before it.

    Raises `ValidationError` unless `write` is of kind compensation, done and without a value.
    """
    if write.kind is not JournalKind.COMPENSATION:
        raise invalid_input("kind", write.kind.value, "must be compensation")
    if write.state is not JournalState.DONE:
        raise invalid_input("state", write.state.value, "must be done")
    if write.value is not None:
        raise invalid_input("value", None, "must not be given")
    if call is None:
        return write
    return msgspec.structs.replace(write, encoding=ENCODING, value=call.encode())
