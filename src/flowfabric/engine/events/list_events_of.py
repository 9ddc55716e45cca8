"""The newest events of several outboxes, merged by time, page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.events.completion_events import CompletionEvent
from flowfabric.engine.events.cursor import FROM_NOW, encode_cursor
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.events.lease_events import LeaseEvent
from flowfabric.engine.events.list_events import EventPage, list_events
from flowfabric.engine.events.operator_events import OperatorEvent
from flowfabric.engine.events.signal_events import SignalEvent
from flowfabric.errors import invalid_input
from flowfabric.ids import NUM_FLOW_PARTITIONS
from flowfabric.pages import check_limit


class MergedEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Some events, newest first, and where each outbox goes on; nowhere if there are no more."""

    events: list[CompletionEvent | LeaseEvent | OperatorEvent | SignalEvent]
    next_cursors: dict[str, bytes]
    """By the name of the outbox; an outbox that has no more is not named."""


async def list_events_of(
    conn: Connection,
    outboxes: Sequence[str],
    *,
    cursors: Mapping[str, bytes] | None = None,
    limit: int = 100,
    filter: EventFilter | None = None,  # noqa: A002  as in the subscriptions
    since: datetime | None = None,
    partitions: int = NUM_FLOW_PARTITIONS,
) -> MergedEvents:
    """At most `limit` (1000) events of these outboxes, as `list_events` gives them of one.

    `cursors` are the `next_cursors` of the page before: outboxes that it does not name have no
    more. Raises `ValidationError(invalid_input)`.
    """
    check_limit(limit)
    wanted = list(dict.fromkeys(outboxes))
    if not wanted:
        raise invalid_input("outboxes", None, "must name at least one")
    pages: dict[str, EventPage] = {}
    for outbox in wanted:
        if cursors is None or outbox in cursors:
            pages[outbox] = await list_events(
                conn,
                outbox,
                cursor=FROM_NOW if cursors is None else cursors[outbox],
                limit=limit,
                filter=filter,
                since=since,
                partitions=partitions,
            )
    merged = sorted(
        (
            (event.at, -place, outbox, event)
            for outbox, page in pages.items()
            for place, event in enumerate(page.events)
        ),
        key=lambda each: each[:3],
        reverse=True,
    )[:limit]
    taken = dict.fromkeys(pages, 0)
    for _, _, outbox, _ in merged:
        taken[outbox] += 1
    ends = {outbox: _end(page, taken[outbox]) for outbox, page in pages.items()}
    return MergedEvents(
        events=[event for *_, event in merged],
        next_cursors={outbox: end for outbox, end in ends.items() if end is not None},
    )


def _end(page: EventPage, taken: int) -> bytes | None:
    """Where the outbox goes on after so many events of its page."""
    if taken == len(page.events):
        return page.next_cursor
    return encode_cursor(page.events[taken].event_id + 1)
