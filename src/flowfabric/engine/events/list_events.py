"""The newest events of one outbox, page by page; nothing is followed and nothing is waited for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.events.completion_events import COMPLETIONS, CompletionEvent
from flowfabric.engine.events.cursor import FROM_NOW, decode_cursor, encode_cursor
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.events.lease_events import LEASES, LeaseEvent
from flowfabric.engine.events.operator_events import OPERATORS, OperatorEvent
from flowfabric.engine.events.outbox import Outbox
from flowfabric.engine.events.signal_events import SIGNALS, SignalEvent
from flowfabric.engine.events.wait_for_flush import wait_for_flush
from flowfabric.errors import invalid_input
from flowfabric.ids import NUM_FLOW_PARTITIONS
from flowfabric.instants import check_instant
from flowfabric.pages import check_limit

OUTBOXES: Final[Mapping[str, Outbox[Any]]] = {
    outbox.name: outbox for outbox in (COMPLETIONS, LEASES, OPERATORS, SIGNALS)
}
_WINDOW: Final = 1000
_MOST_WINDOWS: Final = 100


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some events, newest first, and the cursor of the next page if there may be older ones."""

    events: list[CompletionEvent | LeaseEvent | OperatorEvent | SignalEvent]
    next_cursor: bytes | None


async def list_events(
    conn: Connection,
    outbox: str,
    *,
    cursor: bytes = FROM_NOW,
    limit: int = 100,
    filter: EventFilter | None = None,  # noqa: A002  as in the subscriptions
    since: datetime | None = None,
    partitions: int = NUM_FLOW_PARTITIONS,
) -> EventPage:
    """At most `limit` (1000) events before the cursor; with `since`, none that is older.

    `outbox` is `completion`, `lease`, `operator` or `signal`.
    One call looks at the last 100,000 ids at most: a page may be short, or empty, and still have
    a cursor. Once the transaction of the call has committed, a crash loses no event of the page, so
    the cursors of its events can be subscribed from. Raises `ValidationError(invalid_input)` for
    another outbox, limit or cursor.
    """
    check_limit(limit)
    source = OUTBOXES.get(outbox)
    if source is None:
        raise invalid_input("outbox", outbox, f"must be one of {', '.join(OUTBOXES)}")
    wanted = (filter or EventFilter()).check(partitions=partitions)
    if since is not None:
        check_instant(since, field="since")
    before = decode_cursor(cursor)
    upto = await source.newest(conn) if before is None else before - 1
    found: list[Any] = []
    oldest, window = upto, min(limit + 1, _WINDOW)  # without a filter the first is a whole page
    if source.is_flushed_later:
        await wait_for_flush(conn)
    for _ in range(_MOST_WINDOWS):
        if upto <= 0:
            break
        rows = await source.read(conn, upto - window, upto, window)
        for entry in reversed(rows):
            if since is not None and entry.event is not None and entry.event.at < since:
                return EventPage(events=found, next_cursor=None)
            if wanted.accepts(entry):
                if len(found) == limit:
                    return EventPage(events=found, next_cursor=encode_cursor(oldest))
                found.append(entry.event)
                oldest = entry.event_id
        upto, window = upto - window, _WINDOW
    older = encode_cursor(upto + 1) if upto > 0 else None
    return EventPage(events=found, next_cursor=older)
