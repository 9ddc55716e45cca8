"""Ends, told to those who subscribe."""

from flowfabric.db.rows import Connection
from flowfabric.engine.events.cursor import encode_cursor
from flowfabric.engine.events.subscribe import Hub
from flowfabric.engine.events.subscribe_completions import subscribe_completions
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.states import CompletionOutcome
from flowfabric.testing import Clock
from tests import given
from tests.engine.events.facts import completed, taken


async def test_an_end_is_told_with_all_that_is_known_of_it(
    hub: Hub, db: Connection, clock: Clock
) -> None:
    ends = await subscribe_completions(hub)
    await clock.advance(5)

    done = await completed(db, execution_kind="bill", tags={"shop.tenant": "acme"})

    [event] = await taken(ends)
    assert event.execution_id == done
    assert event.outcome is CompletionOutcome.SUCCESS
    assert (event.namespace, event.lane_id, event.execution_kind) == ("default", "default", "bill")
    assert event.tags == {"shop.tenant": "acme"}
    assert event.flow_id is None
    assert event.at == await clock.now()
    assert event.cursor == encode_cursor(event.event_id) == ends.cursor


async def test_every_way_to_end_is_told_in_order(hub: Hub, db: Connection, clock: Clock) -> None:
    ends = await subscribe_completions(hub)
    done = await completed(db)
    failed = await given.claimed(db)
    await fail(db, [Failure(lease=failed, reason="boom")])
    cancelled = await given.created(db)
    await cancel_execution(db, cancelled, reason="no")
    expired = await given.created(db, deadline=1)
    await clock.advance(1)
    await expire_executions(db, limit=10)

    told = await taken(ends, 4)

    assert [(event.execution_id, event.outcome) for event in told] == [
        (done, CompletionOutcome.SUCCESS),
        (failed.execution_id, CompletionOutcome.FAILED),
        (cancelled, CompletionOutcome.CANCELLED),
        (expired, CompletionOutcome.EXPIRED),
    ]
    assert [event.tags for event in told] == [{}] * 4


async def test_from_now_means_that_nothing_before_is_told(hub: Hub, db: Connection) -> None:
    await completed(db)
    first = await subscribe_completions(hub)
    between = await completed(db)
    second = await subscribe_completions(hub)
    after = await completed(db)

    assert [event.execution_id for event in await taken(second)] == [after]
    assert [event.execution_id for event in await taken(first, 2)] == [between, after]


async def test_an_old_cursor_replays_what_came_after_it(hub: Hub, db: Connection) -> None:
    live = await subscribe_completions(hub)
    before = live.cursor
    ended = [await completed(db) for _ in range(5)]
    told = await taken(live, 5)
    await live.aclose()

    whole = await subscribe_completions(hub, before)
    rest = await subscribe_completions(hub, told[2].cursor)

    assert await taken(whole, 5) == told
    assert [event.execution_id for event in await taken(rest, 2)] == ended[3:]
    last = await completed(db)
    assert [event.execution_id for event in (*await taken(whole), *await taken(rest))] == [last] * 2


async def test_a_cursor_older_than_everything_begins_with_the_oldest(
    hub: Hub, db: Connection
) -> None:
    ended = [await completed(db) for _ in range(3)]

    everything = await subscribe_completions(hub, encode_cursor(0))

    assert [event.execution_id for event in await taken(everything, 3)] == ended


async def test_a_cursor_ahead_of_everything_waits_for_what_lies_behind_it(
    hub: Hub, db: Connection
) -> None:
    live = await subscribe_completions(hub)
    await completed(db)
    [first] = await taken(live)

    ahead = await subscribe_completions(hub, encode_cursor(first.event_id + 2))
    for _ in range(3):
        await completed(db)

    [event] = await taken(ahead)
    assert event.event_id == first.event_id + 3
    assert [other.event_id - first.event_id for other in await taken(live, 3)] == [1, 2, 3]
