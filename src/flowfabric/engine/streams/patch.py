"""JSON merge patches: what may be merged into the summary of a stream."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from flowfabric.errors import invalid_input
from flowfabric.json_values import TOO_DEEP, check_finite

NULL: Final = "__ff_null__"
"""In a patch null deletes a key; this text stores a null."""
MAX_DEPTH: Final = 16
"""How many objects and arrays may be nested in one another."""


def check_patch(payload: bytes) -> bytes:
    """The patch as it is merged: a JSON object, nested at most `MAX_DEPTH` levels.

    Raises `ValidationError(invalid_input)` that says where the patch is wrong.
    """
    try:
        patch = msgspec.json.decode(payload)
        if not isinstance(patch, dict):
            raise invalid_input("patch", None, "must be a JSON object at its root")
        _check_members(cast("dict[str, Any]", patch))
        check_finite(cast("object", patch))
        return msgspec.json.encode(patch)
    except RecursionError:
        raise invalid_input("patch", None, f"cannot be merged: {TOO_DEEP}") from None
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise invalid_input("patch", None, f"is not JSON that can be stored: {error}") from None


def _check_members(patch: dict[str, Any]) -> None:
    unread: list[tuple[int, Any]] = [(1, patch)]
    while unread:
        depth, each = unread.pop()
        if isinstance(each, str):
            if "\x00" in each:
                raise invalid_input("patch", None, "must not contain a NUL character")
        elif isinstance(each, dict | list):
            if depth > MAX_DEPTH:
                raise invalid_input("patch", None, f"is nested more than {MAX_DEPTH} levels")
            members = cast("dict[str, Any] | list[Any]", each)
            if isinstance(members, dict):
                unread.extend((depth + 1, key) for key in members)
                members = list(members.values())
            unread.extend((depth + 1, member) for member in members)
