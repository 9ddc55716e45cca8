"""What the outboxes have in common: an event, a row of an outbox, and how an outbox is read."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from flowfabric.db.rows import Connection

log: Final = logging.getLogger("flowfabric.events")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened. `cursor` is where to go on after it.

    `namespace` is None where the event belongs to no execution.
    """

    cursor: bytes
    event_id: int
    namespace: str | None
    tags: dict[str, str]
    at: datetime


E = TypeVar("E", bound=Event)


class Entry(msgspec.Struct, Generic[E], frozen=True):
    """One row of an outbox; its event is None where the row cannot be understood."""

    event_id: int
    partition_key: int
    event: E | None


class Newest(msgspec.Struct, frozen=True):
    """The highest id that can be seen in an outbox; 0 where it is empty."""

    event_id: int


class Outbox(msgspec.Struct, Generic[E], frozen=True, kw_only=True):
    """One outbox: a table with one sequence of ids, and the topics that are notified for it."""

    name: str
    topics: tuple[str, ...]
    hides_disconnects: bool
    """Does a subscription outlive the loss of its connection, without a word?"""
    read: Callable[[Connection, int, int, int], Awaitable[list[Entry[E]]]]
    """`read(conn, after, upto, limit)`: the first rows with after < event_id <= upto, by id."""
    newest: Callable[[Connection], Awaitable[int]]
    """The highest id that can be seen now."""


class Row(Protocol):
    """What the rows of every outbox have."""

    @property
    def event_id(self) -> int: ...
    @property
    def partition_key(self) -> int: ...


R = TypeVar("R", bound=Row)


def entries(rows: Sequence[R], understood: Callable[[R], E], *, family: str) -> list[Entry[E]]:
    """The rows with their events; a word that this version does not know is logged and skipped."""
    found: list[Entry[E]] = []
    for row in rows:
        event: E | None = None
        try:
            event = understood(row)
        except (ValueError, msgspec.MsgspecError) as error:
            log.warning("%s event %d cannot be read, skipping it: %s", family, row.event_id, error)
        found.append(Entry(row.event_id, row.partition_key, event))
    return found


def decoded_tags(stored: str | None) -> dict[str, str]:
    """The tags as the outbox keeps them."""
    return {} if stored is None else msgspec.json.decode(stored, type=dict[str, str])


def decoded_details(stored: str) -> dict[str, Any]:
    """The facts of an operator event as the outbox keeps them."""
    return msgspec.json.decode(stored, type=dict[str, Any])
