"""Which tags a flow may have."""

from __future__ import annotations

from collections.abc import Mapping

from flowfabric.errors import ValidationError
from flowfabric.ids import check_tag_key, check_tag_value


def check_flow_tags(tags: Mapping[str, str]) -> None:
    """Raises `ValidationError`: `invalid_tag_key` for a key, `invalid_input` for a value."""
    for key, value in tags.items():
        check_flow_tag_key(key)
        check_tag_value(value, key=key)


def check_flow_tag_key(key: str) -> str:
    """The key, if it is valid; raises `ValidationError(invalid_tag_key)`."""
    try:
        return check_tag_key(key)
    except ValidationError as error:
        raise ValidationError("invalid_tag_key", error.detail) from None
