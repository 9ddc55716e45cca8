"""Finds the part of a value that a codec cannot encode."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, cast

import msgspec

from flowfabric.app.codec import UNENCODABLE, Codec
from flowfabric.json_values import TOO_DEEP

_AT_MOST: Final = 10_000
"""How many parts of a value are looked at."""
_ADVICE: Final = (
    "; what can be encoded: None, bool, int, float, str, bytes, dates, UUIDs, lists, dicts,"
    " dataclasses, msgspec structs, pydantic models"
)


def unencodable(value: object, error: Exception, codec: Codec) -> str:
    """What to say of a value that `codec` refused with `error`: which part of it, and its type."""
    if str(error) == TOO_DEEP or str(error).startswith("$"):
        return str(error)
    for path, part in islice(_parts(value), _AT_MOST):
        if isinstance(part, dict):
            for key in cast("dict[object, object]", part):
                if not _encodes(codec, {key: None}):
                    return f"{path} has a key of type {type(key).__name__}: {error}"
        elif not _is_container(part) and not _encodes(codec, part):
            advice = _ADVICE if isinstance(error, NotImplementedError | TypeError) else ""
            return f"{path} is of type {type(part).__name__}: {error}{advice}"
    return str(error)


def _encodes(codec: Codec, part: object) -> bool:
    try:
        codec.encode(part)
    except UNENCODABLE:
        return False
    return True


def _parts(value: object) -> Iterator[tuple[str, Any]]:
    """The value and everything in it, with paths; a container comes before its parts."""
    unread: list[tuple[str, Any]] = [("$", value)]
    while unread:
        path, part = unread.pop()
        yield path, part
        unread.extend(reversed(list(islice(_children(path, part), _AT_MOST))))


def _children(path: str, part: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(part, dict):
        for key, item in cast("dict[object, object]", part).items():
            yield f"{path}.{key}", item
    elif isinstance(part, list | tuple | set | frozenset):
        for number, item in enumerate(cast("list[object]", part)):
            yield f"{path}[{number}]", item
    elif isinstance(part, msgspec.Struct):
        for name in part.__struct_fields__:
            yield f"{path}.{name}", getattr(part, name)
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            yield f"{path}.{field.name}", getattr(part, field.name, None)


def _is_container(part: object) -> bool:
    return isinstance(
        part, list | tuple | set | frozenset | msgspec.Struct
    ) or dataclasses.is_dataclass(part)
