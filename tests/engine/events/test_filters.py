"""Filters: what is set must match, and what an event lacks never does."""

from datetime import UTC, datetime

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.events.cursor import decode_cursor, encode_cursor
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.events.outbox import Entry, Event
from flowfabric.engine.events.subscribe import Hub
from flowfabric.engine.events.subscribe_completions import subscribe_completions
from flowfabric.engine.events.subscribe_lease_history import subscribe_lease_history
from flowfabric.engine.events.subscribe_operator_events import subscribe_operator_events
from flowfabric.errors import ValidationError
from tests.all_cases import all_cases
from tests.engine.events.facts import claimed_many, completed, emitted, taken


def entry(
    namespace: str | None = "shop", tags: dict[str, str] | None = None, partition: int = 7
) -> Entry[Event]:
    event = Event(
        cursor=encode_cursor(1),
        event_id=1,
        namespace=namespace,
        tags={} if tags is None else tags,
        at=datetime(2024, 1, 1, tzinfo=UTC),
    )
    return Entry(1, partition, event)


ACME = {"shop.tenant": "acme"}


@all_cases(
    ("wanted", "found"),
    [
        (EventFilter(), entry(None)),
        (EventFilter(namespace="shop"), entry()),
        (EventFilter(partition=7), entry(None)),
        (EventFilter(tag=("shop.tenant", "acme")), entry(None, ACME)),
        (EventFilter("shop", ("shop.tenant", "acme"), 7), entry(tags=ACME)),
        (EventFilter(partition=0), entry(partition=0)),
    ],
)
def test_an_event_that_has_everything_is_wanted(wanted: EventFilter, found: Entry[Event]) -> None:
    assert wanted.accepts(found)


@all_cases(
    ("wanted", "found"),
    [
        (EventFilter(namespace="shop"), entry("shop2")),
        (EventFilter(namespace="shop"), entry(None)),
        (EventFilter(partition=8), entry()),
        (EventFilter(tag=("shop.tenant", "acme")), entry(tags={"shop.tenant": "acme2"})),
        (EventFilter(tag=("shop.tenant", "acme")), entry(tags={"shop.region": "acme"})),
        (EventFilter(tag=("shop.tenant", "acme")), entry()),
        (EventFilter("shop", ("shop.tenant", "acme"), 7), entry(None, ACME)),
        (EventFilter("shop", ("shop.tenant", "acme"), 7), entry(tags=ACME, partition=6)),
        (EventFilter("shop", ("shop.tenant", "acme"), 7), entry()),
        (EventFilter(), Entry(1, 7, None)),
    ],
)
def test_an_event_that_lacks_anything_is_not(wanted: EventFilter, found: Entry[Event]) -> None:
    assert not wanted.accepts(found)


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        (EventFilter(tag=("Tenant", "acme")), "tag key 'Tenant'"),
        (EventFilter(partition=256), "partition 256"),
        (EventFilter(partition=-1), "partition -1"),
        (EventFilter(namespace=""), "namespace ''"),
    ],
)
async def test_a_filter_that_nothing_can_match_is_refused(
    hub: Hub, wanted: EventFilter, named: str
) -> None:
    for subscribe in (
        subscribe_completions,
        subscribe_lease_history,
        subscribe_operator_events,
    ):
        with pytest.raises(ValidationError, match=f"^invalid_input: {named}"):
            await subscribe(hub, filter=wanted)
    assert not hub.completions.is_reading


async def test_a_subscriber_is_told_only_what_it_wants(hub: Hub, db: Connection) -> None:
    by_name = await subscribe_completions(hub, filter=EventFilter(namespace="default"))
    by_tag = await subscribe_completions(hub, filter=EventFilter(tag=("shop.tenant", "acme")))
    plain = await completed(db)
    acme = await completed(db, tags={"shop.tenant": "acme"})
    await completed(db, tags={"shop.tenant": "other"})
    last = await completed(db, tags={"shop.tenant": "acme", "shop.region": "eu"})
    here = await subscribe_completions(
        hub, encode_cursor(0), filter=EventFilter(partition=plain.partition_key)
    )

    assert [event.execution_id for event in await taken(by_tag, 2)] == [acme, last]
    assert [event.execution_id for event in await taken(by_name, 2)] == [plain, acme]
    assert (await taken(here))[0].execution_id == plain


async def test_what_a_filter_drops_moves_the_cursor_all_the_same(hub: Hub, db: Connection) -> None:
    nothing = await subscribe_lease_history(hub, filter=EventFilter(namespace="nobody"))
    everything = await subscribe_lease_history(hub)
    tagged = await subscribe_lease_history(hub, filter=EventFilter(tag=("shop.tenant", "acme")))
    await claimed_many(db, 3)
    *_, third = await taken(everything, 3)
    last = await completed(db, tags={"shop.tenant": "acme"})

    events = await taken(tagged, 2)

    assert {event.execution_id for event in events} == {last}
    assert tagged.cursor == events[-1].cursor
    assert decode_cursor(tagged.cursor) == third.event_id + 2
    await nothing.aclose()


async def test_an_event_without_a_namespace_is_told_to_those_who_ask_for_none(
    hub: Hub, db: Connection
) -> None:
    everything = await subscribe_operator_events(hub)
    named = await subscribe_operator_events(hub, filter=EventFilter(namespace="default"))
    await emitted(db)
    execution = await completed(db)
    await emitted(db, "replayed", execution=execution)

    of_a_lane, of_an_execution = await taken(everything, 2)

    assert of_a_lane.namespace is None
    assert await taken(named) == [of_an_execution]
