"""Numbers that JSON cannot express, found in a value by their path."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final, cast

TOO_DEEP: Final = "it is nested too deeply, or contains itself"
"""Said of a value whose nesting exceeds Python's recursion limit (about 1,000 levels)."""


def check_finite(value: object) -> None:
    """Raise `ValueError` with the path of the first NaN or infinity, such as `$.a[3]`.

    `value` consists of dicts, lists, tuples, sets and scalars, and does not contain itself.
    """
    for path, number in _numbers(value):
        if not math.isfinite(number):
            raise ValueError(f"{path} is {number}, which JSON cannot express")


def _numbers(value: object) -> Iterator[tuple[str, float]]:
    """Every float in the value, with its path; without recursion."""
    unread: list[tuple[str, Any]] = [("$", value)]
    while unread:
        path, each = unread.pop()
        if isinstance(each, float):
            yield path, each
        elif isinstance(each, dict):
            items = cast("dict[object, object]", each).items()
            unread.extend((f"{path}.{key}", item) for key, item in reversed(items))
        elif isinstance(each, list | tuple | set | frozenset):
            members = list(cast("list[object]", each))
            unread.extend(
                (f"{path}[{number}]", members[number]) for number in reversed(range(len(members)))
            )
