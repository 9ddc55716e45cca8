"""Signals, told to those who subscribe, listed, and found by tag and partition."""

from __future__ import annotations

from uuid import uuid4

import pytest

from flowfabric.conditions import Single
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.events.list_events import list_events
from flowfabric.engine.events.signal_events import SignalEvent
from flowfabric.engine.events.subscribe import Hub
from flowfabric.engine.events.subscribe_signal_delivery import subscribe_signal_delivery
from flowfabric.engine.suspensions.signal_events import NewSignalEvent, record_signal_events
from flowfabric.errors import StreamDisconnected
from flowfabric.ids import ExecutionId
from flowfabric.states import SignalEffect
from flowfabric.testing import Clock
from tests import given
from tests.engine.events.conftest import Cut
from tests.engine.events.facts import taken
from tests.engine.suspensions.given_suspended import accepted, deliver, leased, pending, suspended


async def recorded(
    db: Connection, execution_id: ExecutionId, *effects: SignalEffect, name: str = "go"
) -> None:
    """One signal sent by name for each of these effects."""
    async with db.transaction():
        await db.execute("SELECT pg_current_xact_id()")
        await record_signal_events(
            db,
            [
                NewSignalEvent(
                    execution_id=execution_id,
                    signal_id=uuid4(),
                    signal_name=name,
                    effect=effect,
                    source_type="client",
                    source_identity="ann",
                )
                for effect in effects
            ],
        )


async def test_a_signal_is_told_with_all_that_is_known_of_it(
    hub: Hub, db: Connection, clock: Clock
) -> None:
    signals = await subscribe_signal_delivery(hub)
    held = await suspended(db, Single("a", "go"), tags={"shop.tenant": "acme"})
    waitpoint = held.waitpoints["a"]

    stay = await accepted(db, waitpoint, "stay", source_type="user", source_identity="ann")
    await accepted(db, waitpoint, "go")

    first, second = await taken(signals, 2)
    assert first.execution_id == held.execution_id
    assert (first.signal_id, first.waitpoint_id) == (stay.signal_id, waitpoint.waitpoint_id)
    assert (first.signal_name, first.effect) == ("stay", SignalEffect.APPENDED_TO_WAITPOINT)
    assert (first.source_type, first.source_identity) == ("user", "ann")
    assert (first.namespace, first.lane_id) == ("default", "default")
    assert first.tags == {"shop.tenant": "acme"}
    assert first.at == await clock.now()
    assert second.effect is SignalEffect.RESUME_CONDITION_SATISFIED
    assert second.cursor == signals.cursor


async def test_a_duplicate_is_not_told(hub: Hub, db: Connection) -> None:
    signals = await subscribe_signal_delivery(hub)
    waitpoint = await pending(db, await leased(db))

    for name in ("one", "again"):
        await deliver(db, waitpoint, name, idempotency_key="k")
    await accepted(db, waitpoint, "two")

    assert [event.signal_name for event in await taken(signals, 2)] == ["one", "two"]


@pytest.mark.parametrize("effect", SignalEffect)
async def test_every_effect_is_understood_also_of_a_signal_by_name(
    hub: Hub, db: Connection, effect: SignalEffect
) -> None:
    signals = await subscribe_signal_delivery(hub)
    execution_id = await given.created(db)

    await recorded(db, execution_id, effect)

    [event] = await taken(signals)
    assert (event.effect, event.waitpoint_id) == (effect, None)


async def test_several_events_of_one_call_come_in_its_order(hub: Hub, db: Connection) -> None:
    signals = await subscribe_signal_delivery(hub)
    execution_id = await given.created(db)

    await recorded(db, execution_id, *SignalEffect)
    await recorded(db, execution_id)

    assert [event.effect for event in await taken(signals, len(SignalEffect))] == list(SignalEffect)


async def test_a_subscriber_goes_on_from_its_cursor_and_sees_what_it_asked_for(
    hub: Hub, db: Connection
) -> None:
    acme = await given.created(db, tags={"shop.tenant": "acme"})
    other = await given.created(db, namespace="other")
    await recorded(db, acme, SignalEffect.BUFFERED_IN_INBOX, name="first")
    page = await list_events(db, "signal", limit=1)
    await recorded(db, other, SignalEffect.BUFFERED_IN_INBOX, name="foreign")
    await recorded(db, acme, SignalEffect.BUFFERED_IN_INBOX, name="second")

    by_tag = EventFilter(tag=("shop.tenant", "acme"))
    resumed = await subscribe_signal_delivery(hub, page.events[0].cursor, by_tag)
    foreign = await subscribe_signal_delivery(
        hub, page.events[0].cursor, EventFilter(namespace="other")
    )

    assert [event.signal_name for event in await taken(resumed)] == ["second"]
    assert [event.signal_name for event in await taken(foreign)] == ["foreign"]


async def test_signals_are_listed_newest_first_in_pages(db: Connection) -> None:
    execution_id = await given.created(db)
    for name in ("one", "two", "three"):
        await recorded(db, execution_id, SignalEffect.BUFFERED_IN_INBOX, name=name)

    page = await list_events(db, "signal", limit=2)
    assert page.next_cursor is not None
    rest = await list_events(db, "signal", cursor=page.next_cursor)

    names = [event.signal_name for event in page.events if isinstance(event, SignalEvent)]
    assert names == ["three", "two"]
    assert [event.signal_name for event in rest.events if isinstance(event, SignalEvent)] == ["one"]


@pytest.mark.session("ends a connection of the server")
async def test_a_lost_connection_ends_the_subscription_with_its_cursor(
    hub: Hub, db: Connection, cut: Cut
) -> None:
    signals = await subscribe_signal_delivery(hub)
    execution_id = await given.created(db)
    await recorded(db, execution_id, SignalEffect.BUFFERED_IN_INBOX)
    [event] = await taken(signals)

    async def provoke() -> None:
        await db.execute("SELECT pg_notify('ff_wake', 'signal')")

    await cut("signal_event", provoke)

    with pytest.raises(StreamDisconnected) as lost:
        await taken(signals)
    assert lost.value.cursor == event.cursor


async def test_an_outbox_of_signals_waits_for_nobody(hub: Hub) -> None:
    await subscribe_signal_delivery(hub)

    assert hub.gap_ages()["signal"] == 0.0


async def test_signals_can_be_followed_through_the_engine(
    ff_engine: Engine, db: Connection
) -> None:
    async with await ff_engine.subscribe_signal_delivery() as signals:
        await accepted(db, await pending(db, await leased(db)))

        [event] = await taken(signals)

    assert event.signal_name == "go"
