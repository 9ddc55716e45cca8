"""Ids of executions as columns of bytes: for batches, which have them by the thousand."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from uuid import UUID

from flowfabric.db.driver_uuid import DriverUUID
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId


def pack_ids(executions: Iterable[ExecutionId]) -> bytes:
    """The ids as 18 bytes each: the partition, then the UUID."""
    return b"".join(
        [(each.partition_key << 128 | each.uuid.int).to_bytes(18, "big") for each in executions]
    )


def unpack_ids(data: bytes) -> tuple[list[int], list[UUID]]:
    """Partitions and UUIDs of the ids of `pack_ids`; raises `ValidationError(invalid_input)`."""
    count, rest = divmod(len(data), 18)
    if rest:
        raise invalid_input("ids", None, "must have 18 bytes each")
    found = struct.unpack(">" + "H16s" * count, data)
    return list(found[::2]), list(map(DriverUUID, found[1::2]))
