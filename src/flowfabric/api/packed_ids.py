"""Ids of executions as columns of bytes: for batches, which have them by the thousand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId, uuid_of

_U128: Final = (1 << 128) - 1


def pack_ids(executions: Iterable[ExecutionId]) -> bytes:
    """The ids as 18 bytes each: the partition, then the UUID."""
    return b"".join(
        [(each.partition_key << 128 | each.uuid.int).to_bytes(18, "big") for each in executions]
    )


def unpack_ids(data: bytes) -> list[ExecutionId]:
    """The ids of `pack_ids`; raises `ValidationError(invalid_input)`."""
    if len(data) % 18:
        raise invalid_input("ids", None, "must have 18 bytes each")
    found: list[ExecutionId] = []
    for at in range(0, len(data), 18):
        number = int.from_bytes(data[at : at + 18], "big")
        found.append(ExecutionId(number >> 128, uuid_of(number & _U128)))
    return found
