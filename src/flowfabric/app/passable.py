"""Whether what one task returns can be an argument of another, judged by their annotations.

Only what is certain is refused: where an annotation says nothing, such as `Any` or a class with a
codec of its own, the answer is yes, and the worker that decodes the value decides.
"""

from __future__ import annotations

import collections.abc as abc
import dataclasses
import enum
import types
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import (
    Any,
    Final,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from uuid import UUID

import msgspec

_ARRAYS: Final = (list, tuple, set, frozenset, abc.Sequence, abc.Set, abc.Collection)
_NO_ARRAYS: Final = (str, bytes, bytearray, abc.Mapping)
_SCALARS: Final = (bool, int, float, str, bytes, datetime, date, time, timedelta, UUID, Decimal)
_WIDENED: Final = {(int, float), (int, Decimal)}


class Field(msgspec.Struct, frozen=True):
    """One field of a model, or one argument of a task."""

    annotation: Any
    required: bool


def passable(source: Any, target: Any, *, exact: bool = False) -> bool:
    """May a value of the type `source`, encoded, be decoded as the type `target`?

    With `exact`, a number of one type does not become one of another, and a class with a codec of
    its own takes only values of that class.
    """
    source, target = _plain(source), _plain(target)
    if _says_nothing(source) or _says_nothing(target):
        return True
    if get_origin(source) in (Union, types.UnionType):
        return all(passable(each, target, exact=exact) for each in get_args(source))
    if get_origin(target) in (Union, types.UnionType):
        return any(passable(source, each, exact=exact) for each in get_args(target))
    if get_origin(source) is Literal:
        return all(_literal_passable(value, target, exact) for value in get_args(source))
    if get_origin(target) is Literal:
        return any(passable(source, type(value), exact=exact) for value in get_args(target))
    return _classes_passable(source, target, exact)


def is_meant_for(source: Any, target: Any) -> bool:
    """Does the type `target` say by itself that it takes a `source`?

    So do the same type, a union with it, and a supertype; `float` does not say it of an `int`, and
    `Any` says it of nothing.
    """
    return not _says_nothing(_plain(target)) and passable(source, target, exact=True)


def fields_of(model: Any) -> dict[str, Field] | None:
    """The fields of a model by the names that they are encoded with; None if they are unknown."""
    if is_typeddict(model):
        hints = get_type_hints(model)
        return {name: Field(hint, name in model.__required_keys__) for name, hint in hints.items()}
    if not is_model(model):
        return None
    if issubclass(model, msgspec.Struct):
        if model.__struct_config__.array_like or model.__struct_config__.tag:
            return None
        described = msgspec.structs.fields(model)
        return {each.encode_name: Field(each.type, each.required) for each in described}
    if dataclasses.is_dataclass(model):
        hints, missing = get_type_hints(model), dataclasses.MISSING
        return {
            each.name: Field(
                hints[each.name], each.default is missing and each.default_factory is missing
            )
            for each in dataclasses.fields(model)
        }
    return None


def is_model(wanted: Any) -> bool:
    """Is it a class whose values are encoded as objects: a struct, a dataclass or the like?"""
    if not isinstance(wanted, type):
        return False
    kind = cast("type[object]", wanted)
    return (
        issubclass(kind, msgspec.Struct)
        or dataclasses.is_dataclass(kind)
        or hasattr(kind, "model_validate")
        or is_typeddict(kind)
    )


def is_mapping(wanted: Any) -> bool:
    """Is it a dict, or another mapping, whose keys are not known?"""
    origin = get_origin(wanted) or wanted
    return isinstance(origin, type) and issubclass(origin, abc.Mapping) and not is_typeddict(wanted)


def fields_passable(source: Mapping[str, Field], target: Mapping[str, Field]) -> bool:
    """Does an object with the fields of `source` have all that `target` needs?"""
    return all(
        passable(source[name].annotation, wanted.annotation)
        if name in source
        else not wanted.required
        for name, wanted in target.items()
    )


def shown(wanted: Any) -> str:
    """The type as its author wrote it, or nearly so."""
    if wanted is type(None) or wanted is None:
        return "None"
    if isinstance(wanted, type) and not get_args(wanted):
        return wanted.__qualname__.rpartition(".<locals>.")[2]
    return str(wanted).replace("typing.", "").replace("collections.abc.", "")


def _classes_passable(source: Any, target: Any, exact: bool) -> bool:
    a: Any = get_origin(source) or source
    b: Any = get_origin(target) or target
    if not (isinstance(a, type) and isinstance(b, type)):
        return not exact or source == target
    if (_is_array(a) and _is_array(b)) or (is_mapping(a) and is_mapping(b)):
        return _elements_passable(source, target, exact)
    if issubclass(a, enum.Enum) and not issubclass(b, enum.Enum):
        return (not _is_known(b) and not exact) or any(
            passable(type(each.value), b, exact=exact) for each in a
        )
    if a is b or ((a, b) in _WIDENED and not exact):
        return True
    if exact and not (_is_known(a) and _is_known(b)):
        return issubclass(a, b)
    if a in _SCALARS or b in _SCALARS or a is type(None) or b is type(None):
        return not (_is_known(a) and _is_known(b))
    return _models_passable(source, target)


def _models_passable(source: Any, target: Any) -> bool:
    one, other = fields_of(source), fields_of(target)
    if one is not None and other is not None:
        return fields_passable(one, other)
    are_objects = (one is not None or is_mapping(source), other is not None or is_mapping(target))
    return not ((_is_array(source) and are_objects[1]) or (are_objects[0] and _is_array(target)))


def _elements_passable(source: Any, target: Any, exact: bool) -> bool:
    """Compare what the containers hold: the last parameter of each, if each has one."""
    one = [each for each in get_args(source) if each is not Ellipsis]
    other = [each for each in get_args(target) if each is not Ellipsis]
    if not one or not other:
        return True
    wanted = other[-1]
    if is_mapping(source):
        return passable(one[-1], wanted, exact=exact)
    return len(other) != 1 or all(passable(each, wanted, exact=exact) for each in one)


def _literal_passable(value: object, target: Any, exact: bool) -> bool:
    if get_origin(target) is Literal:
        return value in get_args(target)
    return passable(type(value), target, exact=exact)


def _plain(wanted: Any) -> Any:
    """Without the wrappers that do not change how a value is encoded."""
    while True:
        if wanted is None:
            return type(None)
        if get_origin(wanted) in (Required, NotRequired) or hasattr(wanted, "__metadata__"):
            wanted = get_args(wanted)[0]
        elif hasattr(wanted, "__supertype__"):
            wanted = wanted.__supertype__
        elif hasattr(wanted, "__value__") and not isinstance(wanted, type):
            wanted = wanted.__value__
        else:
            return wanted


def _says_nothing(wanted: Any) -> bool:
    return wanted is Any or wanted is object or isinstance(wanted, TypeVar | str)


def _is_known(kind: Any) -> bool:
    """Is it a class whose encoding is known: no foreign class with hooks of its own?"""
    return (
        kind in _SCALARS
        or kind is type(None)
        or _is_array(kind)
        or is_mapping(kind)
        or is_model(kind)
        or issubclass(kind, enum.Enum)
    )


def _is_array(wanted: Any) -> bool:
    origin = get_origin(wanted) or wanted
    return (
        isinstance(origin, type)
        and issubclass(origin, _ARRAYS)
        and not issubclass(origin, _NO_ARRAYS)
    )
