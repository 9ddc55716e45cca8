"""The values of entries as bytes and back: what a handler gets is always what was stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from flowfabric.errors import RESULT_ENCODE, EntryDecodeError
from flowfabric.worker.durable.settings import ValueCodec

RAW: Final = "bytes"
"""The encoding of bytes that are stored as they are."""
RESULT_TOO_LARGE: Final = "result_too_large"
_TAKE_NONE: Final = (Any, None, type(None), object)


class StoredValue(msgspec.Struct, frozen=True, gc=False):
    """A value as the journal holds it; None is stored as nothing."""

    data: bytes | None
    encoding: str | None


class Unstorable(Exception):
    """A value that cannot be stored, in this category."""

    def __init__(self, category: str, reason: str) -> None:
        super().__init__(reason)
        self.category, self.reason = category, reason


class Values:
    """Encodes and decodes the values of one task's entries, with the codec of the task."""

    def __init__(self, codec: ValueCodec, max_bytes: int) -> None:
        self._codec, self._max_bytes = codec, max_bytes
        self._decoders: dict[Any, Callable[[bytes], Any]] = {}

    def encode(self, value: object) -> StoredValue:
        """The value to store; raises `Unstorable`."""
        if value is None:
            return StoredValue(None, None)
        if isinstance(value, bytes):
            stored = StoredValue(value, RAW)
        else:
            try:
                stored = StoredValue(self._codec.encode(value), self._codec.name)
            except Exception as error:
                why = f"a {type(value).__name__} cannot be encoded: {error}"
                raise Unstorable(RESULT_ENCODE, why) from error
        size = len(stored.data or b"")
        if size > self._max_bytes:
            why = f"its value has {size} bytes, more than {self._max_bytes}"
            raise Unstorable(RESULT_TOO_LARGE, why)
        return stored

    def decode(self, name: str, stored: StoredValue, wanted: Any = Any) -> Any:
        """The value as the type that the handler declares; raises `EntryDecodeError`."""
        try:
            if stored.data is None:
                return self._nothing(wanted)
            if stored.encoding == RAW:
                return msgspec.convert(stored.data, wanted)
            return self._decoder(stored.encoding, wanted)(stored.data)
        except Exception as error:
            raise EntryDecodeError(name, type_name(wanted), str(error)) from error

    def _nothing(self, wanted: Any) -> None:
        """None, which is stored as nothing; raises `ValidationError` unless the type takes it."""
        if wanted in _TAKE_NONE:
            return
        try:
            self._decoder(None, wanted)(self._codec.encode(None))
        except msgspec.ValidationError:
            raise
        except Exception:
            return  # a type that is never decoded says nothing about None

    def _decoder(self, encoding: str | None, wanted: Any) -> Callable[[bytes], Any]:
        if encoding not in (None, self._codec.name):
            return _other_decoder(encoding, wanted)
        try:
            found = self._decoders.get(wanted)
        except TypeError:  # an annotation without a hash
            return self._codec.decoder(wanted)
        if found is None:
            found = self._decoders[wanted] = self._codec.decoder(wanted)
        return found


def _other_decoder(encoding: str | None, wanted: Any) -> Callable[[bytes], Any]:
    if encoding == "json":
        return msgspec.json.Decoder(wanted).decode
    if encoding == "msgpack":
        return msgspec.msgpack.Decoder(wanted).decode
    raise ValueError(f"its encoding {encoding!r} is not that of the task")


def type_name(wanted: Any) -> str:
    """How an error names a type."""
    return getattr(wanted, "__name__", None) or str(wanted)
