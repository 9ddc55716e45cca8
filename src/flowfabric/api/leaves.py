"""Leaves of forms: ids, instants, durations, leases and conditions, each as one text or number."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from flowfabric.conditions.condition import Condition, Single
from flowfabric.conditions.stored import decode_condition, encode_condition
from flowfabric.engine.lifecycle.lease import Lease, LeaseHandle, pack_lease, unpack_lease
from flowfabric.engine.streams.cursor import FrameId
from flowfabric.engine.streams.cursor import after as parse_frame_id
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId, GroupId, PartitionKey
from flowfabric.tokens import WaitpointToken

ExecutionIdText: TypeAlias = Annotated[
    str, Meta(description="`{fp:N}:<uuid>`, or `N.<uuid>`", examples=["{fp:86}:0189d0c3-…"])
]
HandleText: TypeAlias = Annotated[str, Meta(description="a lease, opaque: give it back as it is")]
Instant: TypeAlias = Annotated[datetime, Meta(tz=True)]
Convert: TypeAlias = Callable[[Any], Any]
_SHORT_ID: Final = re.compile(r"([0-9]{1,5})\.([0-9a-fA-F-]{32,36})")
_MOST_PARTITIONS: Final = 65536
"""The engine refuses an id in a partition that its database does not have."""


class Form(msgspec.Struct, frozen=True):
    """How values of a type look on the wire. A function that is None changes nothing."""

    wire: Any
    dump: Convert | None = None
    load: Convert | None = None
    present: Form | None = None
    """Of a value that may be None: the form of one that is not."""
    dump_all: Convert | None = None
    """As `dump`, of a list of values at once; None: one by one."""
    load_all: Convert | None = None

    def dumped(self, value: Any) -> Any:
        return value if self.dump is None else self.dump(value)

    def loaded(self, value: Any) -> Any:
        return value if self.load is None else self.load(value)


def parse_execution_id(text: str) -> ExecutionId:
    """The id, also in the form `N.<uuid>`; raises `ValidationError(invalid_input)`."""
    if not text.startswith("{"):
        short = _SHORT_ID.fullmatch(text)
        if short is not None:
            text = f"{{fp:{short[1]}}}:{short[2]}"
    return ExecutionId.parse(text, partitions=_MOST_PARTITIONS)


def group_id(text: str) -> GroupId:
    """The id of a join; raises `ValidationError(invalid_input)`."""
    found = parse_execution_id(text)
    return GroupId(found.partition_key, found.uuid)


def _seconds(value: float | timedelta) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _duration(given: float) -> timedelta:
    try:
        return timedelta(seconds=given)
    except (OverflowError, ValueError):
        raise ValidationError("invalid_input", f"{given:g} seconds are too many") from None


def _utc(value: datetime) -> datetime:
    return value if value.tzinfo is UTC else value.astimezone(UTC)


def write_handle(lease: Lease) -> str:
    """A lease as the opaque text that its holder gives back."""
    handle = lease.handle(lease_ttl=0.0, lane_id="", worker_instance_id="")
    return urlsafe_b64encode(handle.encode()).decode()


def read_handle(text: str) -> Lease:
    """The lease of a handle; raises `ValidationError(corruption)`."""
    try:
        data = urlsafe_b64decode(text.encode())
    except ValueError:
        raise ValidationError("corruption", "handle: not base64", field="handle") from None
    return LeaseHandle.decode(data).lease


LEAVES: Final[Mapping[Any, Form]] = {
    Lease: Form(HandleText, write_handle, read_handle),
    ExecutionId: Form(ExecutionIdText, str, parse_execution_id),
    GroupId: Form(ExecutionIdText, str, group_id),
    PartitionKey: Form(str, str, PartitionKey.parse),
    FrameId: Form(str, str, parse_frame_id),
    WaitpointToken: Form(str, WaitpointToken.reveal, WaitpointToken),
    timedelta: Form(float, _seconds, _duration),
    datetime: Form(Instant, _utc),
    Condition: Form(
        Any,
        lambda value: msgspec.json.decode(encode_condition(value)),
        lambda value: decode_condition(msgspec.json.encode(value)),
    ),
    Single: Form(Any),
}
PACKED_LEAVES: Final[Mapping[Any, Form]] = {
    **LEAVES,
    Lease: Form(bytes, pack_lease, unpack_lease),
}
"""In MessagePack a handle is bytes: leases go out with claims and come back by the thousand."""
