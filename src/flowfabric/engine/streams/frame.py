"""A frame of a stream: as a holder appends it, and as readers get it."""

from __future__ import annotations

import base64
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeVar, overload

import msgspec

from flowfabric.engine.streams.cursor import FrameId
from flowfabric.engine.streams.patch import check_patch
from flowfabric.errors import ValidationError, invalid_input
from flowfabric.ids import check_name, check_text, check_type
from flowfabric.instants import instant
from flowfabric.policy import milliseconds
from flowfabric.states import FrameKind, FrameMode, PatchKind

MAX_PAYLOAD: Final = 65536
"""Bytes of the payload of a frame."""
MAX_TYPE: Final = 128
"""Bytes of the type of a frame."""
DEFAULT_TTL: Final = 10.0
"""Seconds for which a best-effort frame is of use, unless its writer says otherwise."""
MAXLEN_FLOOR: Final = 64
MAXLEN_CEILING: Final = 16384
EMA_ALPHA: Final = 0.2
_LONGEST_TTL_MS: Final = 24 * 60 * 60 * 1000
_MAX_LENGTH: Final = 2**31 - 1

W = TypeVar("W", bound=StrEnum)
T = TypeVar("T")


def check_word(given: object, words: type[W], *, field: str) -> W:
    """The word of an enumeration; raises `ValidationError(invalid_input)` that lists them."""
    try:
        return words(given)
    except ValueError:
        listed = ", ".join(repr(word.value) for word in words)
        raise invalid_input(field, given, f"must be one of {listed}") from None


class NewFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A frame to append; valid once it is made.

    Without a `frame_type` its type is its `kind`. A frame of mode `summary` has a JSON object as
    its payload, nested at most 16 levels, which is merged into the summary of the stream; with
    `replaces` the top-level keys that it does not name are deleted. The numbers of a best-effort
    frame say how many of them are kept; one that makes no sense counts as its default.

    Raises `ValidationError`: `retention_limit_exceeded` for a payload over 64 KiB, `invalid_input`
    for everything else.
    """

    payload: bytes = b""
    frame_type: str = ""
    kind: FrameKind = FrameKind.EVENT
    mode: FrameMode = FrameMode.DURABLE
    correlation_id: str | None = None
    patch_kind: PatchKind = PatchKind.JSON_MERGE_PATCH
    replaces: bool = False
    ttl: float | timedelta = DEFAULT_TTL
    maxlen_floor: int = MAXLEN_FLOOR
    maxlen_ceiling: int = MAXLEN_CEILING
    ema_alpha: float = EMA_ALPHA

    def __post_init__(self) -> None:
        keep = msgspec.structs.force_setattr
        mode = check_word(self.mode, FrameMode, field="mode")
        keep(self, "mode", mode)
        payload = check_type(self.payload, bytes, field="payload")
        if len(payload) > MAX_PAYLOAD:
            raise ValidationError(
                "retention_limit_exceeded",
                f"payload of {len(payload)} bytes is over {MAX_PAYLOAD}: split it into frames, or"
                " store it elsewhere and append where it is",
                field="payload",
            )
        kind = check_word(self.kind, FrameKind, field="kind")
        if self.frame_type:
            _check_type_name(self.frame_type)
        else:
            keep(self, "frame_type", kind.value)
        if self.correlation_id is not None:
            check_text(self.correlation_id, field="correlation_id")
        if mode is FrameMode.SUMMARY:
            check_word(self.patch_kind, PatchKind, field="patch_kind")
            keep(self, "payload", check_patch(payload))
        elif mode is FrameMode.BEST_EFFORT:
            self._settle_bounds()

    @property
    def ttl_ms(self) -> int:
        return milliseconds(self.ttl, field="ttl")

    def _settle_bounds(self) -> None:
        if not 1 <= self.ttl_ms <= _LONGEST_TTL_MS:
            raise invalid_input("ttl", self.ttl, "must be from a millisecond to a day")
        keep = msgspec.structs.force_setattr
        floor = _length(self.maxlen_floor, MAXLEN_FLOOR)
        keep(self, "maxlen_floor", floor)
        keep(self, "maxlen_ceiling", max(floor, _length(self.maxlen_ceiling, MAXLEN_CEILING)))
        if not 0 < self.ema_alpha <= 1:
            keep(self, "ema_alpha", EMA_ALPHA)


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """A frame as it was appended; `id` is its place in the stream of its attempt."""

    id: FrameId
    attempt_index: int
    mode: FrameMode
    frame_type: str
    payload: bytes
    correlation_id: str | None = None
    summary_version: int | None = None
    """The version of the summary after this patch."""
    ttl: float | None = None
    """For how many seconds a best-effort frame is of use."""

    @property
    def cursor(self) -> str:
        """Where to go on after this frame: the `after` of `handle.stream`."""
        return f"{self.attempt_index}:{self.id}"

    @property
    def at(self) -> datetime:
        """When the frame was appended."""
        return instant(self.id.ms)

    @property
    def text(self) -> str:
        """The payload as text; what is not UTF-8 is replaced."""
        return self.payload.decode("utf-8", "replace")

    @overload
    def value(self) -> Any: ...
    @overload
    def value(self, type: type[T]) -> T: ...
    def value(self, type: Any = Any) -> Any:  # noqa: A002  as elsewhere
        """The payload, decoded from JSON; raises `ValidationError(invalid_input)`."""
        try:
            return msgspec.json.decode(self.payload, type=type)
        except msgspec.MsgspecError as error:
            why = f"of type {self.frame_type!r} does not decode: {error}"
            raise invalid_input("frame", str(self.id), why) from None

    @property
    def fields(self) -> dict[str, str]:
        """The frame as texts; a payload that is not UTF-8 is written in base64."""
        try:
            payload, encoding = self.payload.decode(), "utf8"
        except UnicodeDecodeError:
            payload, encoding = base64.b64encode(self.payload).decode(), "base64"
        optional = {
            "correlation_id": self.correlation_id,
            "summary_version": self.summary_version,
            "ttl_ms": None if self.ttl is None else round(self.ttl * 1000),
        }
        return {
            "frame_type": self.frame_type,
            "payload": payload,
            "encoding": encoding,
            "source": "worker",
            "ts": str(self.id.ms),
            "mode": self.mode.value,
            **{name: str(value) for name, value in optional.items() if value is not None},
        }


def _check_type_name(given: str) -> None:
    check_name(given, field="frame_type")
    check_text(given, field="frame_type", at_most=MAX_TYPE)


def _length(given: object, default: int) -> int:
    return given if type(given) is int and 0 < given <= _MAX_LENGTH else default
