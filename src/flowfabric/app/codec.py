"""How values become bytes and back. Pickle is never used."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from flowfabric.errors import invalid_input
from flowfabric.json_values import TOO_DEEP, check_finite

_NOT_FINITE: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""The head of a float64 in MessagePack whose exponent has only ones."""


class Codec(Protocol):
    """Encodes arguments and results of a task; `name` is stored with the payload."""

    @property
    def name(self) -> str: ...
    def encode(self, value: object) -> bytes: ...
    def decoder(self, wanted: Any) -> Callable[[bytes], Any]:
        """A function that reads bytes as a value of the type `wanted`."""
        ...


class JsonCodec:
    """JSON: builtins, dataclasses, msgspec structs, dates, UUIDs, and pydantic models."""

    name = "json"

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder(enc_hook=_encode_foreign)
        self._packer = msgspec.msgpack.Encoder(enc_hook=_encode_foreign)

    def encode(self, value: object) -> bytes:
        """The value as JSON; raises `ValueError` for NaN, infinity and values nested too deeply."""
        try:
            encoded = self._encoder.encode(value)
            # NaN and infinity became null. MessagePack has them, so its bytes tell cheaply whether
            # the value may contain one.
            if b"null" in encoded and self._may_not_be_finite(value):
                check_finite(msgspec.to_builtins(value, enc_hook=_encode_foreign))
        except RecursionError:
            raise ValueError(TOO_DEEP) from None
        return encoded

    def _may_not_be_finite(self, value: object) -> bool:
        try:
            return _NOT_FINITE.search(self._packer.encode(value)) is not None
        except OverflowError:  # an integer of more than 64 bits
            return True

    def decoder(self, wanted: Any) -> Callable[[bytes], Any]:
        return msgspec.json.Decoder(wanted, dec_hook=_decode_foreign).decode


class MsgpackCodec:
    """The same values as MessagePack: smaller, and not readable by eye."""

    name = "msgpack"

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_encode_foreign)

    def encode(self, value: object) -> bytes:
        """The value as MessagePack; raises `ValueError` for values that are nested too deeply."""
        try:
            return self._encoder.encode(value)
        except RecursionError:
            raise ValueError(TOO_DEEP) from None

    def decoder(self, wanted: Any) -> Callable[[bytes], Any]:
        return msgspec.msgpack.Decoder(wanted, dec_hook=_decode_foreign).decode


def _encode_foreign(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    raise NotImplementedError(f"values of type {type(value).__name__} cannot be encoded")


def _decode_foreign(wanted: type, value: object) -> object:
    if wanted is object:
        return value
    validate = getattr(wanted, "model_validate", None)
    if validate is not None:
        return validate(value)
    raise NotImplementedError(f"values of type {wanted.__name__} cannot be decoded")


JSON: Final = JsonCodec()
MSGPACK: Final = MsgpackCodec()
UNENCODABLE: Final = (
    NotImplementedError,
    TypeError,
    ValueError,
    ArithmeticError,
    RecursionError,
)
"""What codecs raise for a value that they cannot encode."""
RAW: Final = "bytes"
"""The encoding of a payload that is passed as it is."""


def encode_untyped(value: object, *, field: str = "result") -> tuple[bytes | None, str | None]:
    """A value without its task, and its encoding: bytes as they are, anything else as JSON.

    Raises `ValidationError`, which names `field`, for a value that has no form in JSON.
    """
    if value is None:
        return None, None
    if isinstance(value, bytes):
        return value, RAW
    try:
        return JSON.encode(value), JSON.name
    except UNENCODABLE as error:
        shown = f"a {type(value).__name__}"
        raise invalid_input(field, shown, f"cannot be encoded: {error}") from None
