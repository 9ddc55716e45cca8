"""Values as JSON data: ids as text, instants as ISO 8601, durations as seconds, bytes as base64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from flowfabric.ids import ExecutionId, PartitionKey

_DECODERS: Final[Mapping[str | None, Callable[[bytes], Any]]] = {
    None: msgspec.json.decode,
    "json": msgspec.json.decode,
    "msgpack": msgspec.msgpack.decode,
}
"""Encodings that are decoded without a type; the bytes of any other are given as they are."""


def wire(value: object) -> Any:
    """The value as dicts, lists, strings, numbers, booleans and None; raises `TypeError`."""
    match value:
        case None | bool() | int() | float():
            return value
        case Enum():
            return value.value
        case str():
            return value
        case ExecutionId() | PartitionKey() | UUID():
            return str(value)
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return msgspec.to_builtins(value)
        case msgspec.Struct():
            return {name: wire(getattr(value, name)) for name in value.__struct_fields__}
        case Mapping():
            items = cast("Mapping[object, object]", value)
            return {str(key): wire(item) for key, item in items.items()}
        case Sequence():
            return [wire(item) for item in cast("Sequence[object]", value)]
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form")


def read_untyped(result: bytes | None, encoding: str | None) -> Any:
    """The result, decoded without knowing its type; the bytes if they cannot be decoded."""
    decode = _DECODERS.get(encoding)
    if result is None or decode is None:
        return result
    try:
        return decode(result)
    except (ValueError, RecursionError):  # also for texts that are not UTF-8
        return result
