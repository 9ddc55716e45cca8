"""What a handler says while it runs, for those that watch it: frames, and its state."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar, Final

import msgspec

from flowfabric.engine.streams.frame import DEFAULT_TTL, NewFrame
from flowfabric.engine.streams.patch import NULL
from flowfabric.errors import invalid_input
from flowfabric.json_values import TOO_DEEP, check_finite
from flowfabric.states import FrameMode

STATE: Final = "state"
"""The type of the frames by which a handler changes its state."""


class StreamCalls:
    """Frames of the stream of the attempt; readers get them from `handle.stream()`.

    A value is bytes, a text, or anything that JSON can express. The calls return before the frame
    is committed; it is committed within moments, and before the next durable call returns or the
    attempt ends. While the handler repeats what this attempt has done before, they do nothing.
    """

    __slots__ = ()

    NULL: ClassVar = NULL
    """In a patch, None deletes a key and this stores a null."""

    async def _append(self, frame: NewFrame) -> None:
        raise NotImplementedError

    async def emit(
        self, frame_type: str, value: object = b"", *, correlation_id: str | None = None
    ) -> None:
        """Append a frame that is kept: up to 10,000 of an attempt, or as many as its policy says.

        Raises `ValidationError` for a type that is not 1 to 128 printable bytes, and for a value
        that cannot be encoded or has more than 64 KiB (`retention_limit_exceeded`).
        """
        await self._append(
            NewFrame(frame_type=frame_type, payload=encoded(value), correlation_id=correlation_id)
        )

    async def live(
        self,
        frame_type: str,
        value: object = b"",
        *,
        ttl: float | timedelta = DEFAULT_TTL,
        correlation_id: str | None = None,
    ) -> None:
        """Append a frame that is of use for about `ttl` seconds: only the newest ones are kept.

        Raises as `emit`.
        """
        await self._append(
            NewFrame(
                frame_type=frame_type,
                payload=encoded(value),
                mode=FrameMode.BEST_EFFORT,
                ttl=ttl,
                correlation_id=correlation_id,
            )
        )

    async def patch(self, document: Mapping[str, Any]) -> None:
        """Merge the document into the state of the handler; `handle.state(type=...)` reads it.

        None deletes a key, `ctx.NULL` stores a null, objects are merged, and anything else
        replaces. Raises `ValidationError` for what is not a JSON object of at most 16 levels.
        """
        await self._append(_patch(document, replaces=False))

    async def set_state(self, document: Mapping[str, Any]) -> None:
        """As `patch`; also deletes the top-level keys that the document does not name."""
        await self._append(_patch(document, replaces=True))


def encoded(value: object) -> bytes:
    """The payload of a frame with this value; raises `ValidationError(invalid_input)`."""
    if isinstance(value, bytes):
        return value
    try:
        if isinstance(value, str):
            return value.encode()
        check_finite(msgspec.to_builtins(value))
        return msgspec.json.encode(value)
    except RecursionError:
        raise invalid_input("value", None, f"cannot be encoded: {TOO_DEEP}") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid_input("value", None, f"cannot be encoded: {error}") from None


def _patch(document: Mapping[str, Any], *, replaces: bool) -> NewFrame:
    if isinstance(document, str | bytes):
        raise invalid_input("patch", None, f"must be a mapping, not {type(document).__name__}")
    return NewFrame(
        frame_type=STATE, payload=encoded(document), mode=FrameMode.SUMMARY, replaces=replaces
    )
