"""Arrays of our parameters in the binary format of Postgres.

The driver asks of every element whether it is an array itself, and encodes one element after the
other. Our arrays are flat, often of a thousand elements, and a good part of what a statement costs
the client is spent there. Here a few calls make a whole array.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from itertools import chain
from struct import Struct
from typing import Any, Final, NamedTuple
from uuid import UUID

from asyncpg.pgproto import pgproto

_HEAD: Final = Struct(">iiIii")
"""Dimensions, a flag, the type of the elements, how many there are, the first index."""
_LENGTH: Final = Struct(">i")
_NULL: Final = _LENGTH.pack(-1)
_TEXT: Final = 25
_REMEMBERED: Final = range(-1, 2048)
"""Partitions, attempts, epochs and priorities are such numbers, and lengths of payloads."""


class _Encoded(dict[Any, bytes]):
    """Numbers as they are sent; those of `_REMEMBERED` are encoded once."""

    def __init__(self, encode: Callable[[Any], bytes]) -> None:
        self._encode = encode

    def __missing__(self, number: Any) -> bytes:
        encoded = self._encode(number)
        if type(number) is int and number in _REMEMBERED:
            self[number] = encoded
        return encoded


_LENGTHS: Final = _Encoded(_LENGTH.pack)


class ArrayCodec(NamedTuple):
    """How the arrays of one type are sent and received."""

    oid: int
    name: str
    element_oid: int
    encode: Callable[[Collection[Any]], bytes]
    decode: Callable[[bytes], list[Any]]


def _codec(
    oid: int,
    name: str,
    element_oid: int,
    *,
    join: Callable[[list[Any]], bytes],
    encode_one: Callable[[Any], bytes],
    decode_one: Callable[[bytes], object],
) -> ArrayCodec:
    """`join` encodes all elements, each behind its length, and may raise if one is unusual.

    Then they are encoded one by one; an element that is wrong raises there.
    """

    def elements(values: list[Any]) -> bytes:
        first = values[0]
        # Such are the ids of leases of one claim, and the partitions of a bulk submit.
        if first is values[-1] and values.count(first) == len(values):
            return _one(first, encode_one) * len(values)
        try:
            return join(values)
        except (KeyError, TypeError, AttributeError):
            return b"".join([_one(value, encode_one) for value in values])

    def encode(given: Collection[Any]) -> bytes:
        values = list(given)
        head = _HEAD.pack(1, 0, element_oid, len(values), 1)
        return head + elements(values) if values else head

    def decode(data: bytes) -> list[Any]:
        return [None if each is None else decode_one(each) for each in _received(data)]

    return ArrayCodec(oid, name, element_oid, encode, decode)


def _one(value: Any, encode_one: Callable[[Any], bytes]) -> bytes:
    if value is None:
        return _NULL
    encoded = encode_one(value)
    return _LENGTH.pack(len(encoded)) + encoded


def _received(data: bytes) -> Iterator[bytes | None]:
    """The elements of an array as Postgres sends it."""
    if _LENGTH.unpack_from(data)[0] == 0:  # no dimension: it is empty
        return
    dimensions, _, _, count, _ = _HEAD.unpack_from(data)
    assert dimensions == 1, "our statements return flat arrays"
    at = _HEAD.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(data, at)
        at += 4
        yield None if length < 0 else data[at : at + length]
        at += max(0, length)


def _numbers(oid: int, name: str, element_oid: int, layout: str) -> ArrayCodec:
    one = Struct(f">{layout}")
    known = _Encoded(lambda number: _one(number, one.pack))
    return _codec(
        oid,
        name,
        element_oid,
        join=lambda values: b"".join(map(known.__getitem__, values)),
        encode_one=one.pack,
        decode_one=lambda data: one.unpack(data)[0],
    )


_FLAGS: Final = {None: _NULL, False: _LENGTHS[1] + b"\0", True: _LENGTHS[1] + b"\1"}


def _join_flags(values: list[Any]) -> bytes:
    return b"".join([_FLAGS[value] for value in values])


def _join_uuids(values: list[Any]) -> bytes:
    # The property `bytes` of Python's own class is slower than this.
    encoded = [
        value.int.to_bytes(16, "big") if type(value) is UUID else value.bytes for value in values
    ]
    return _LENGTHS[16] + _LENGTHS[16].join(encoded)


def _uuid_bytes(value: UUID | str) -> bytes:
    return UUID(value).bytes if isinstance(value, str) else value.bytes


def _buffer(value: bytes | bytearray | memoryview) -> bytes:
    return memoryview(value).tobytes()  # a number is refused


def _join_bytes(values: list[Any]) -> bytes:
    lengths = map(_LENGTHS.__getitem__, map(len, values))
    return b"".join(chain.from_iterable(zip(lengths, values, strict=True)))


@lru_cache(maxsize=256)
def _one_text(value: str | None) -> bytes:
    """An array of one text: a batch of submits has its lane, kind and policy in such arrays."""
    return _HEAD.pack(1, 0, _TEXT, 1, 1) + _one(value, str.encode)


def _texts() -> ArrayCodec:
    codec = _codec(
        1009,
        "_text",
        _TEXT,
        join=lambda values: _join_bytes([value.encode() for value in values]),
        encode_one=str.encode,
        decode_one=bytes.decode,
    )

    def encode(given: Collection[Any]) -> bytes:
        if isinstance(given, str):
            raise TypeError("a text is not an array of texts")
        if len(given) == 1:
            [value] = given
            return _one_text(value)
        return codec.encode(given)

    return codec._replace(encode=encode)


ARRAY_CODECS: Final = (
    _numbers(1005, "_int2", 21, "h"),
    _numbers(1007, "_int4", 23, "i"),
    _numbers(1016, "_int8", 20, "q"),
    _codec(
        1000,
        "_bool",
        16,
        join=_join_flags,
        encode_one=lambda flag: _FLAGS[flag][4:],
        decode_one=lambda data: data == b"\1",
    ),
    _codec(
        2951,
        "_uuid",
        2950,
        join=_join_uuids,
        encode_one=_uuid_bytes,
        decode_one=pgproto.UUID,
    ),
    _texts(),
    _codec(1001, "_bytea", 17, join=_join_bytes, encode_one=_buffer, decode_one=bytes),
)
