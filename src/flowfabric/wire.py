"""Values as JSON data: ids as text, instants as ISO 8601, durations as seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, cast
from uuid import UUID

import msgspec

from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId, PartitionKey


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
            return _payload(value)
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
    if result is None:
        return None
    decode = msgspec.msgpack.decode if encoding == "msgpack" else msgspec.json.decode
    try:
        return decode(result)
    except msgspec.DecodeError:
        return result


def write_untyped(result: object, encoding: str | None) -> bytes | None:
    """The result in the encoding of its execution; raises `ValidationError` if it has no form.

    Bytes are stored as they are.
    """
    if result is None or isinstance(result, bytes):
        return result
    encode = msgspec.msgpack.encode if encoding == "msgpack" else msgspec.json.encode
    try:
        return encode(result)
    except (TypeError, ValueError) as error:
        raise invalid_input(
            "result", type(result).__name__, f"cannot be encoded: {error}"
        ) from None


def _payload(data: bytes) -> Any:
    """The JSON value of a payload or result; base64 text if the bytes are not JSON."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return msgspec.to_builtins(data)
