"""What the outboxes have in common: an event, a row of an outbox, and how it is read."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.tags import read_tags

log: Final = logging.getLogger("flowfabric.events")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event. `cursor` is the position after it.

    `namespace` is None if the event belongs to no execution.
    """

    cursor: bytes
    event_id: int
    namespace: str | None
    tags: dict[str, str]
    at: datetime


E = TypeVar("E", bound=Event)


class Entry(msgspec.Struct, Generic[E], frozen=True):
    """One row of an outbox; its event is None if the row cannot be decoded."""

    event_id: int
    partition_key: int
    event: E | None


class Newest(msgspec.Struct, frozen=True):
    """The highest id that is visible in an outbox; 0 if it is empty."""

    event_id: int


class Outbox(msgspec.Struct, Generic[E], frozen=True, kw_only=True):
    """One outbox: a table with one sequence of ids, and the topics that its writers wake."""

    name: str
    topics: tuple[str, ...]
    hides_disconnects: bool
    """Does a subscription go on by itself after its connection was lost?"""
    is_flushed_later: bool = False
    """Are there events that are visible before their WAL is flushed?"""
    read: Callable[[Connection, int, int, int], Awaitable[list[Entry[E]]]]
    """`read(conn, after, upto, limit)`: the first rows with after < event_id <= upto, by id."""
    newest: Callable[[Connection], Awaitable[int]]
    """The highest id that is visible now."""


class Row(Protocol):
    """The columns that the rows of every outbox have."""

    @property
    def event_id(self) -> int: ...
    @property
    def partition_key(self) -> int: ...


R = TypeVar("R", bound=Row)


def entries(rows: Sequence[R], decode: Callable[[R], E], *, outbox: str) -> list[Entry[E]]:
    """The rows with their events; a row that this version cannot decode is logged."""
    found: list[Entry[E]] = []
    for row in rows:
        event: E | None = None
        try:
            event = decode(row)
        except (ValueError, msgspec.MsgspecError) as error:
            log.warning("%s event %d cannot be read, skipping it: %s", outbox, row.event_id, error)
        found.append(Entry(row.event_id, row.partition_key, event))
    return found


def decoded_tags(stored: str | None) -> dict[str, str]:
    """The tags of a stored event."""
    return read_tags(stored)


def decoded_details(stored: str) -> dict[str, Any]:
    """The details of a stored operator event."""
    return msgspec.json.decode(stored, type=dict[str, Any])
