"""Why a value is not of the type that a task declares: its place, what was expected, what came."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import NoneType
from typing import Any, Final, cast, get_args

import msgspec

SCALARS: Final[Mapping[Any, tuple[type, ...]]] = {
    str: (str,),
    int: (int,),
    float: (float, int),
    bool: (bool,),
}
"""Types that a value of another type may encode to: bytes and dates become texts, for example."""
_PLACE: Final = re.compile(r" - at `([^`]*)`$")
_MODULES: Final = re.compile(r"\b(?:\w+\.|<locals>\.)+(?=\w)")


def scalar_mismatch(value: object, wanted: Any) -> str | None:
    """Why the value is not of the scalar type `wanted`; None if it is, or the type is no scalar."""
    allowed = SCALARS.get(wanted) if isinstance(wanted, type) else None
    if allowed is None or (
        isinstance(value, allowed) and not (isinstance(value, bool) and wanted is not bool)
    ):
        return None
    got = "None" if value is None else type(value).__name__
    return f"expected {type_name(wanted)}, got {got}"


def decode_mismatch(error: Exception) -> tuple[str, str]:
    """The path in the value at which decoding failed, such as `$.total`, and why."""
    why = str(error)
    if not isinstance(error, msgspec.DecodeError):
        return "$", f"{type(error).__name__}: {why}"
    found = _PLACE.search(why)
    if found is not None:
        why = why[: found.start()]
    words = " ".join(why.replace("`", "").split())
    return found[1] if found else "$", words[:1].lower() + words[1:]


def type_name(wanted: Any) -> str:
    """The type as it is written in an annotation, without its modules."""
    if wanted is None or wanted is NoneType:
        return "None"
    if isinstance(wanted, type) and not get_args(wanted):
        return cast("type[Any]", wanted).__name__
    return _MODULES.sub("", str(wanted))
