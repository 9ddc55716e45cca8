"""How a task's durable calls behave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

HOT: Final = 2.0
"""Seconds that a sleep, or the wait before a retry, takes place without giving up the lease."""
MAX_STEP_BYTES: Final = 256 * 1024
MOST_STEP_BYTES: Final = 1024 * 1024
"""What `max_step_bytes` may be at most."""
MAX_ENTRIES: Final = 10_000
MAX_JOURNAL_BYTES: Final = 16 * 1024 * 1024
ADVISED_ENTRIES: Final = 2_000
ADVISED_BYTES: Final = 4 * 1024 * 1024


OnDivergence: TypeAlias = Literal["suspend", "fail"]


class ValueCodec(Protocol):
    """Encodes the values of entries; `flowfabric.Codec` is one."""

    @property
    def name(self) -> str: ...
    def encode(self, value: object) -> bytes: ...
    def decoder(self, wanted: Any) -> Callable[[bytes], Any]: ...


class PlainJson:
    """JSON of what msgspec knows: for handlers that belong to no task."""

    name = "json"

    def encode(self, value: object) -> bytes:
        return msgspec.json.encode(value)

    def decoder(self, wanted: Any) -> Callable[[bytes], Any]:
        return msgspec.json.Decoder(wanted).decode


def _no_arguments(*_args: Any, **_kwargs: Any) -> tuple[bytes, str | None]:
    return b"", None


class DurableSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a task that its durable calls need."""

    codec: ValueCodec = msgspec.field(default_factory=PlainJson)
    encode_arguments: Callable[..., tuple[bytes, str | None]] = _no_arguments
    """The payload and its encoding, for `ctx.restart`."""
    replay: Literal["strict", "by_name"] = "strict"
    replay_patience: float = 2.0
    """How many seconds a new call waits until the recorded ones have been made again."""
    on_divergence: OnDivergence | None = None
    """None: suspended, and in tests with the pytest plugin failed."""
    version: int = 0
    raises: tuple[type[BaseException], ...] = ()
    """Errors of steps that come back as the same class."""
    max_step_bytes: int = MAX_STEP_BYTES
    is_allowed: bool = True
    """False for a task that runs in a child process, or on batches."""
