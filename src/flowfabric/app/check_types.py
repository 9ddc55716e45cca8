"""Types of arguments and results that cannot be decoded are found when a task is registered."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from flowfabric.app.codec import Codec, JsonCodec, MsgpackCodec
from flowfabric.errors import ConfigError

_OURS: Final = (JsonCodec, MsgpackCodec)
_ADVICE: Final = (
    "write a builtin type, a list or dict of them, a dataclass, a msgspec struct or a pydantic"
    " model, or give the task a codec= of your own"
)


def check_types(kind: str, what: str, codec: Codec, wanted: Any) -> None:
    """Raise `ConfigError` for a type that the codec cannot decode."""
    try:
        codec.decoder(wanted)
        foreign = _foreign(wanted) if type(codec) in _OURS else None
    except Exception as error:
        raise ConfigError("task", kind, f"{what} cannot be decoded: {error}") from None
    if foreign is not None:
        name = getattr(foreign, "__name__", repr(foreign))
        raise ConfigError(
            "task",
            kind,
            f"{what} has the type {name}, which no codec of ours can decode: {_ADVICE}",
        )


def _foreign(wanted: Any) -> Any:
    """The first type in `wanted` that is neither known to msgspec nor a pydantic model."""
    unread: list[object] = [msgspec.inspect.type_info(wanted)]
    seen: set[int] = set()
    while unread:
        part = unread.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, msgspec.inspect.CustomType):
            if part.cls is not object and not hasattr(part.cls, "model_validate"):
                return part.cls
        elif isinstance(part, msgspec.inspect.Type | msgspec.inspect.Field):
            unread.extend(getattr(part, name) for name in part.__struct_fields__)
        elif isinstance(part, tuple):
            unread.extend(cast("tuple[object, ...]", part))
    return None
