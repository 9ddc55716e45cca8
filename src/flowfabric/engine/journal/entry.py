"""An entry of the journal: as a holder writes it, and as it is stored."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Final

import msgspec

from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import ValidationError, invalid_input
from flowfabric.ids import check_is_text, check_text, check_type
from flowfabric.instants import check_instant
from flowfabric.states import JournalKind, JournalState

MAX_NAME: Final = 128
"""Bytes of the name of an entry."""
MAX_ITEM: Final = 256
"""Bytes of the item of an entry."""
MAX_KEY: Final = MAX_NAME + MAX_ITEM + len(":#") + len("2147483647")
"""Bytes of the key of an entry, as people read it."""
MAX_VALUE: Final = 1024 * 1024
"""Bytes of the value of an entry."""
PATCH_PREFIX: Final = "patch:"
"""How the name of the entry of a patch begins: a step may have the same name as a patch."""
_MAX_NUMBER: Final = 2**31 - 1
MAX_TRIES: Final = 2**15 - 1
"""How often the function of a step is tried at most."""
_MAX_FINGERPRINT: Final = 2**32 - 1


class EntryWrite(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An entry that the holder of `lease` records; valid once it is made.

    The key is name, item and occurrence; `seq` is its place in the journal, from 1. Raises
    `ValidationError` for a name, item, number, instant or value that cannot be stored.
    """

    lease: Lease
    seq: int
    kind: JournalKind
    state: JournalState
    name: str
    item: str = ""
    occurrence: int = 0
    started_at: datetime
    due_at: datetime | None = None
    """End of a sleep, timeout of a wait, or next try of a step."""
    fingerprint: int | None = None
    """crc32 of the encoded arguments."""
    signal_seq: int | None = None
    """Number, in the inbox, of the signal that the call consumed."""
    tries: int = 1
    encoding: str | None = None
    value: bytes | None = None

    def __post_init__(self) -> None:
        check_entry_name(self.name)
        if self.item:
            check_text(self.item, field="item", at_most=MAX_ITEM)
        elif self.item != "":
            raise invalid_input("item", self.item, "must be a text")
        if type(self.kind) is not JournalKind:
            check_type(self.kind, JournalKind, field="kind")
        if type(self.state) is not JournalState:
            check_type(self.state, JournalState, field="state")
        _check_number("seq", self.seq, 1, _MAX_NUMBER)
        _check_number("occurrence", self.occurrence, 0, _MAX_NUMBER)
        if self.tries != 1:
            _check_number("tries", self.tries, 1, MAX_TRIES)
        if self.fingerprint is not None:
            _check_number("fingerprint", self.fingerprint, 0, _MAX_FINGERPRINT)
        if self.signal_seq is not None:
            _check_number("signal_seq", self.signal_seq, 1, _MAX_NUMBER)
        check_instant(self.started_at, field="started_at")
        if self.due_at is not None:
            check_instant(self.due_at, field="due_at")
        if self.encoding is not None:
            _check_encoding(check_is_text(self.encoding, field="encoding"))
        if self.value is not None:
            _check_value(self.value)


class JournalEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry as it is stored; one that is done or failed never changes."""

    seq: int
    kind: JournalKind
    state: JournalState
    name: str
    item: str
    occurrence: int
    attempt_index: int
    """The attempt that recorded it."""
    tries: int
    started_at: datetime
    recorded_at: datetime
    due_at: datetime | None
    fingerprint: int | None
    signal_seq: int | None
    encoding: str | None
    value: bytes | None

    @property
    def key(self) -> str:
        """The key of the call, as people read it."""
        return entry_key(self.name, self.item, self.occurrence)


def entry_key(name: str, item: str, occurrence: int) -> str:
    """A key as people read it: `fetch:page-1#0`, or `fetch#0` without an item."""
    return f"{name}:{item}#{occurrence}" if item else f"{name}#{occurrence}"


def check_entry_name(name: str, *, field: str = "name") -> str:
    """The name, if it has 1 to 128 bytes and only printable characters.

    Raises `ValidationError(invalid_input)` otherwise.
    """
    _check_name(check_is_text(name, field=field), field)
    return name


@lru_cache(maxsize=1024)
def _check_name(name: str, field: str) -> None:
    check_text(name, field=field, at_most=MAX_NAME)
    if not name.isprintable():
        raise invalid_input(field, name, "must not contain control or invisible characters")


@lru_cache(maxsize=64)
def _check_encoding(encoding: str) -> None:
    check_text(encoding, field="encoding")


def stored_fingerprint(fingerprint: int | None) -> int | None:
    """The crc32 as the column has it, which is signed."""
    if fingerprint is None or fingerprint < 2**31:
        return fingerprint
    return fingerprint - 2**32


def read_fingerprint(stored: int | None) -> int | None:
    """The crc32 of a stored number."""
    return None if stored is None else stored % 2**32


def _check_number(field: str, given: object, least: int, most: int) -> None:
    if type(given) is not int or not least <= given <= most:
        raise invalid_input(field, given, f"must be a whole number from {least} to {most}")


def _check_value(given: object) -> None:
    if type(given) is not bytes:
        raise invalid_input("value", None, f"must be bytes, not {type(given).__name__}")
    if len(given) > MAX_VALUE:
        raise ValidationError(
            "payload_too_large", f"value {len(given)} bytes is over {MAX_VALUE}", field="value"
        )
