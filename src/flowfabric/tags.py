"""Tags: short texts by which executions and flows are found; how many there may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from flowfabric.errors import ValidationError, invalid_input
from flowfabric.ids import check_tag_key, check_tag_value

MAX_TAGS: Final = 64
MAX_TAGS_BYTES: Final = 16 * 1024
"""All keys and values of one execution or flow together; `ff.tags_fault` has the same limits."""


def check_tags(tags: object) -> None:
    """Raise `ValidationError(invalid_input)` unless the tags can be stored together."""
    if not isinstance(tags, Mapping):
        raise invalid_input("tags", tags, "must map keys to texts")
    given = cast("Mapping[str, str]", tags)
    for key, value in given.items():
        check_tag_key(key)
        check_tag_value(value, key=key)
    count, size = len(given), _bytes_of(given)
    if count > MAX_TAGS:
        raise invalid_input("tags", None, f"are {count}, and must be at most {MAX_TAGS}")
    if size > MAX_TAGS_BYTES:
        raise invalid_input(
            "tags", None, f"have {size} bytes, and must have at most {MAX_TAGS_BYTES}"
        )


def have_room(tags: Mapping[str, str]) -> bool:
    """Are they few and short enough to be stored together?"""
    return len(tags) <= MAX_TAGS and _bytes_of(tags) <= MAX_TAGS_BYTES


def _bytes_of(tags: Mapping[str, str]) -> int:
    return sum(len(key) + len(value.encode()) for key, value in tags.items())


def too_many_tags(key: str) -> ValidationError:
    """The error of a tag for which an execution or a flow has no room."""
    return invalid_input(
        "tag", key, f"is one too many: at most {MAX_TAGS} tags of {MAX_TAGS_BYTES} bytes in all"
    )


def read_tags(stored: str | None) -> dict[str, str]:
    """The tags of a stored JSON object; a value that is no text is read as its JSON.

    A value that another writer stored so must not keep the rows beside it from being read.
    """
    if stored is None:
        return {}
    try:
        return msgspec.json.decode(stored, type=dict[str, str])
    except msgspec.ValidationError:
        tags: Any = msgspec.json.decode(stored)
        if not isinstance(tags, dict):
            return {}
        return {
            key: value if isinstance(value, str) else msgspec.json.encode(value).decode()
            for key, value in cast("dict[str, Any]", tags).items()
        }
