"""Which tags a flow may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from flowfabric.errors import ValidationError
from flowfabric.ids import check_tag_key
from flowfabric.tags import check_tags


def check_flow_tags(tags: Mapping[str, str]) -> None:
    """Raises `ValidationError`: `invalid_tag_key` for a key, else `invalid_input`."""
    if isinstance(cast("object", tags), Mapping):
        for key in tags:
            check_flow_tag_key(key)
    check_tags(tags)


def check_flow_tag_key(key: str) -> str:
    """The key, if it is valid; raises `ValidationError(invalid_tag_key)`."""
    try:
        return check_tag_key(key)
    except ValidationError as error:
        raise ValidationError("invalid_tag_key", error.detail) from None
