"""Payloads on the wire: JSON passes through byte by byte, everything else is given as bytes."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from flowfabric.errors import invalid_input

JSON: Final = "json"
_NULLS: Final = (b"null", b"\xc0")
"""Null in JSON and in MessagePack."""
_RAW: Final = msgspec.json.Decoder(msgspec.Raw)

PAIRS: Final = {
    "input_payload": ("payload_encoding", "input"),
    "payload": ("payload_encoding", "payload"),
    "result": ("result_encoding", "result"),
    "value": ("encoding", "value"),
    "document_json": ("", "document"),
}
"""The fields of engine types that are payloads: the field of the encoding, the wire's member.

A struct whose field of the encoding is called `encoding` has that instead; a payload without one is
given as JSON if it is JSON.
"""


def is_json(data: bytes) -> bool:
    """Can these bytes stand in a JSON document as they are?"""
    try:
        _RAW.decode(data)
        data.decode()
    except (ValueError, RecursionError):
        return False
    return True


def split(data: bytes | None, encoding: str | None) -> tuple[msgspec.Raw | None, bytes | None]:
    """The payload as JSON text, or as bytes; neither if there is no payload."""
    if data is None:
        return None, None
    if encoding in (None, JSON) and data and is_json(data):
        return msgspec.Raw(data), None
    return None, data


def join(
    member: str,
    raw: msgspec.Raw | UnsetType | None,
    data: bytes | None,
    encoding: str | None,
    *,
    packed: bool,
    answered: bool = False,
) -> tuple[bytes | None, str | None]:
    """The bytes of a payload and their encoding, as given in either form.

    In an answer null is no payload; in a request it is the JSON null, unless there are bytes.
    Raises `ValidationError(invalid_input)` if both are given, or an encoding that JSON has not.
    """
    if raw is None or raw is UNSET:
        return data, encoding
    if bytes(raw) in _NULLS and (answered or data is not None):
        return data, encoding
    if data is not None:
        raise invalid_input(member, None, f"and {member}_base64 must not both be given")
    if encoding not in (None, JSON):
        why = f"must be json beside {member}; give other payloads as {member}_base64"
        raise invalid_input("encoding", encoding, why)
    text = bytes(raw)
    if packed:
        text = msgspec.json.encode(msgspec.msgpack.decode(text))
    return text, JSON
