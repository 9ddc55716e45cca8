"""A lease: the fence of one claim, and the opaque handle that a remote holder keeps."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import msgspec

from flowfabric.db.driver_uuid import DriverUUID
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId, attempt_id, parse_uuid
from flowfabric.policy import milliseconds
from flowfabric.stored_policy import MAX_MS

_MAGIC: Final = 0x02
_VERSION: Final = 0x01
_POSTGRES: Final = 0x02
_SMALL: Final = 2**15 - 1
_MAX_ATTEMPT: Final = 2**31 - 1
_MAX_EPOCH: Final = 2**63 - 1
_PACKED: Final = struct.Struct("<H16sIQ16s")


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The right to write the outcome of an execution, as long as it is current and not expired."""

    execution_id: ExecutionId
    attempt_index: int
    lease_epoch: int
    lease_id: UUID

    @property
    def attempt_id(self) -> UUID:
        return attempt_id(self.execution_id, self.attempt_index)

    def handle(self, *, lease_ttl: float, lane_id: str, worker_instance_id: str) -> LeaseHandle:
        """The lease as a remote holder keeps it."""
        return LeaseHandle(
            lease=self,
            attempt_id=self.attempt_id,
            lease_ttl=lease_ttl,
            lane_id=lane_id,
            worker_instance_id=worker_instance_id,
        )


def fence_columns(leases: Sequence[Lease]) -> dict[str, list[Any]]:
    """The leases as the array parameters of a fenced statement.

    A number that its column cannot have is sent as -1, which no row has: the call with it is
    refused by the fence, and the other calls of the batch are answered.
    """
    return {
        "partition_key": _fitting([lease.execution_id.partition_key for lease in leases], _SMALL),
        "execution_id": [lease.execution_id.uuid for lease in leases],
        "attempt_index": _fitting([lease.attempt_index for lease in leases], _MAX_ATTEMPT),
        "lease_epoch": _fitting([lease.lease_epoch for lease in leases], _MAX_EPOCH),
        "lease_id": [lease.lease_id for lease in leases],
    }


def _fitting(numbers: list[int], largest: int) -> list[int]:
    if not numbers or (min(numbers) >= 0 and max(numbers) <= largest):
        return numbers
    return [number if 0 <= number <= largest else -1 for number in numbers]


def pack_lease(lease: Lease) -> bytes:
    """The lease as few bytes: for programs that exchange leases by the thousand."""
    execution_id = lease.execution_id
    return _PACKED.pack(
        execution_id.partition_key,
        execution_id.uuid.bytes,
        lease.attempt_index,
        lease.lease_epoch,
        lease.lease_id.bytes,
    )


def unpack_lease(data: bytes) -> Lease:
    """The lease of these bytes, or of those of a handle; raises as `LeaseHandle.decode`."""
    if len(data) != _PACKED.size:
        return LeaseHandle.decode(data).lease
    partition_key, execution, attempt_index, lease_epoch, lease_id = _PACKED.unpack(data)
    if attempt_index > _MAX_ATTEMPT or lease_epoch > _MAX_EPOCH:
        numbers = f"attempt {attempt_index}, epoch {lease_epoch}"
        raise ValidationError("corruption", f"handle: out of range: {numbers}", field="handle")
    execution_id = ExecutionId(partition_key, DriverUUID(execution))
    return Lease(execution_id, attempt_index, lease_epoch, _lease_uuid(lease_id))


_lease_uuid: Final = lru_cache(maxsize=128)(DriverUUID)  # the leases of one claim have the same id


class LeaseHandleKind(StrEnum):
    """How the holder got its lease; passed beside the bytes of the handle."""

    FRESH = "fresh"
    RESUMED = "resumed"
    SUSPENDED = "suspended"
    RECLAIMED = "reclaimed"


class LeaseHandle(msgspec.Struct, frozen=True, kw_only=True):
    """A lease with the facts that a remote holder needs; encoded as opaque bytes."""

    lease: Lease
    attempt_id: UUID
    lease_ttl: float
    lane_id: str
    worker_instance_id: str

    def encode(self) -> bytes:
        """The opaque bytes."""
        lease = self.lease
        return b"".join(
            (
                bytes((_MAGIC, _VERSION, _POSTGRES)),
                _text(str(lease.execution_id)),
                struct.pack("<I", lease.attempt_index),
                _text(str(self.attempt_id)),
                _text(str(lease.lease_id)),
                struct.pack("<QQ", lease.lease_epoch, milliseconds(self.lease_ttl)),
                _text(self.lane_id),
                _text(self.worker_instance_id),
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> LeaseHandle:
        """The handle of these bytes; raises `ValidationError` (`corruption`, or other backend)."""
        if len(data) < 3 or data[0] != _MAGIC or data[1] != _VERSION:
            raise ValidationError("corruption", "handle: unknown layout")
        if data[2] != _POSTGRES:
            raise ValidationError("handle_from_other_backend", f"handle: backend byte {data[2]:#x}")
        reader = _Reader(data, 3)
        try:
            execution_id = ExecutionId.parse(reader.text())
            attempt_index = reader.number("<I")
            this_attempt = parse_uuid(reader.text(), field="attempt_id")
            lease_id = parse_uuid(reader.text(), field="lease_id")
            lease_epoch, lease_ttl_ms = reader.number("<Q"), reader.number("<Q")
            lane_id, worker_instance_id = reader.text(), reader.text()
        except (struct.error, UnicodeDecodeError, ValidationError) as error:
            raise ValidationError("corruption", f"handle: {error}") from None
        if lease_ttl_ms > MAX_MS:
            raise ValidationError("corruption", f"handle: a lease of {lease_ttl_ms} ms")
        if attempt_index > _MAX_ATTEMPT or lease_epoch > _MAX_EPOCH:
            numbers = f"attempt {attempt_index}, epoch {lease_epoch}"
            raise ValidationError("corruption", f"handle: out of range: {numbers}")
        if reader.at != len(data):
            raise ValidationError("corruption", "handle: trailing bytes")
        return cls(
            lease=Lease(execution_id, attempt_index, lease_epoch, lease_id),
            attempt_id=this_attempt,
            lease_ttl=lease_ttl_ms / 1000,
            lane_id=lane_id,
            worker_instance_id=worker_instance_id,
        )


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack("<I", len(encoded)) + encoded


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data, self.at = data, at

    def number(self, layout: str) -> int:
        (value,) = struct.unpack_from(layout, self._data, self.at)
        self.at += struct.calcsize(layout)
        return value

    def text(self) -> str:
        length = self.number("<I")
        if self.at + length > len(self._data):
            raise struct.error("text is cut short")
        value = self._data[self.at : self.at + length].decode()
        self.at += length
        return value
