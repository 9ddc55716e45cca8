"""The type of a task's results: values are checked when encoded, and read as that type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, Final, cast, get_args

from flowfabric.app.codec import JSON, MSGPACK, RAW, UNENCODABLE, Codec
from flowfabric.app.mismatch import SCALARS, decode_mismatch, scalar_mismatch, type_name
from flowfabric.app.unencodable import unencodable
from flowfabric.errors import RESULT_ENCODE, Fail, ResultDecodeError, RetryLater
from flowfabric.policy import Retry
from flowfabric.worker.handler import EncodedResult

_BUILT_IN: Final[Mapping[str, Codec]] = {JSON.name: JSON, MSGPACK.name: MSGPACK}


class ResultType:
    """What the function of one task returns, and how it is stored."""

    def __init__(self, kind: str, codec: Codec, returns: Any) -> None:
        self._kind, self._codec, self._returns = kind, codec, returns
        self._wanted = type_name(returns)
        self._raw = returns is bytes or set(get_args(returns)) == {bytes, NoneType}
        self._untyped = returns is Any
        self._exact: Any = returns if isinstance(returns, type) and returns in SCALARS else None
        self._decoders: dict[str, Callable[[bytes], Any]] = {}
        self._takes_none = self._untyped or _takes_none(codec, returns)

    def encode(self, result: object, encoding: str | None) -> EncodedResult:
        """The result in the encoding of its payload; bytes as the whole result stay as they are.

        Raises `Fail`, for good, if the value cannot be encoded, or would not be read as the type
        that the function is annotated with.
        """
        if result is None:
            if not self._takes_none:
                raise self._mistyped(f"expected {self._wanted.removesuffix(' | None')}, got None")
            return EncodedResult()
        if self._raw or self._untyped:
            if isinstance(result, bytes):
                return EncodedResult(result, None if encoding == RAW else RAW)
            if self._raw:
                return self._raw_bytes(result, encoding)
        if isinstance(result, Retry | RetryLater):
            raise self._fail(
                f"{self._kind!r} returned a {type(result).__name__}; a handler that is to be tried"
                " again raises RetryLater"
            )
        try:
            codec = codec_of(encoding, own=self._codec)
            data = codec.encode(result)
        except UNENCODABLE as error:
            why = unencodable(result, error, self._codec)
            raise self._fail(f"result of {self._kind!r} cannot be encoded: {why}") from None
        if type(result) is not self._exact and not self._untyped:
            self._check(result, data, codec)
        return EncodedResult(data, None if encoding == codec.name else codec.name)

    def read(self, stored: bytes | None, encoding: str | None) -> Any:
        """The value that the function returned; None if nothing is stored.

        Raises `ResultDecodeError`.
        """
        if stored is None or self._raw or (encoding == RAW and self._untyped):
            return stored
        try:
            return self._decoder(_BUILT_IN.get(encoding or "", self._codec))(stored)
        except Exception as error:
            path, why = decode_mismatch(error)
            raise ResultDecodeError(
                self._kind, path=path, wanted=self._wanted, why=why, stored=stored
            ) from error

    def _raw_bytes(self, result: object, encoding: str | None) -> EncodedResult:
        if isinstance(result, bytearray | memoryview):
            return EncodedResult(bytes(cast("bytearray", result)), None if encoding == RAW else RAW)
        raise self._mistyped(f"expected bytes, got {type(result).__name__}")

    def _check(self, result: object, data: bytes, codec: Codec) -> None:
        """Raise `Fail` unless the encoded result is read as the type of the results."""
        if self._exact is not None:
            why = scalar_mismatch(result, self._exact)
            if why is not None:
                raise self._mistyped(why)
        try:
            self._decoder(codec)(data)
        except Exception as error:
            path, why = decode_mismatch(error)
            raise self._mistyped(why if path == "$" else f"{path}: {why}") from None

    def _decoder(self, codec: Codec) -> Callable[[bytes], Any]:
        own = codec.name == self._codec.name
        if codec.name not in self._decoders:
            self._decoders[codec.name] = (self._codec if own else codec).decoder(self._returns)
        return self._decoders[codec.name]

    def _mistyped(self, why: str) -> Fail:
        return self._fail(f"result of {self._kind!r} does not match -> {self._wanted}: {why}")

    def _fail(self, reason: str) -> Fail:
        return Fail(reason, category=RESULT_ENCODE, retryable=False)


def codec_of(encoding: str | None, *, own: Codec) -> Codec:
    """The codec of a payload, for a task with its `own`; raises `ValueError` if it is unknown."""
    if encoding in (None, RAW, own.name):
        return own
    if encoding not in _BUILT_IN:
        raise ValueError(f"encoding {encoding!r} is unknown")
    return _BUILT_IN[encoding]


def _takes_none(codec: Codec, returns: Any) -> bool:
    """Is None a value of this type? A codec that has no None is not asked."""
    try:
        nothing = codec.encode(None)
    except Exception:
        return True
    try:
        codec.decoder(returns)(nothing)
    except Exception:
        return False
    return True
