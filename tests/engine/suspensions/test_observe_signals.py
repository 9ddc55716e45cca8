"""The signals that resumed an attempt: those that satisfied its condition, and no others."""

import msgspec
import pytest

from flowfabric.conditions import AllConditions, CountOf, Single
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.suspensions.observe_signals import observe_signals
from flowfabric.engine.suspensions.suspension import Fresh
from flowfabric.policy import FixedBackoff
from flowfabric.testing import Clock
from tests import given
from tests.engine.suspensions import parked
from tests.engine.suspensions.parked import Parked, ask, deliver

THREE = tuple(Fresh(waitpoint_key=each) for each in "abc")


@pytest.fixture(autouse=True)
async def key(db: Connection, clock: Clock) -> None:
    await parked.keyed(db)


async def observed(db: Connection, held: Parked) -> list[str]:
    """The names of the signals that the next holder of the attempt sees."""
    lease = await parked.taken_up(db, held.id)
    return [each.signal_name for each in await observe_signals(db, lease)]


async def test_of_a_single_condition_it_is_the_first_match(db: Connection, clock: Clock) -> None:
    held = await parked.parked(db, condition=Single("approval", "go"))
    await deliver(db, held.id, held.waitpoint, "other")
    await clock.advance(1)
    await deliver(
        db,
        held.id,
        held.waitpoint,
        "go",
        payload=b"x",
        encoding="raw",
        source_identity="ann",
        correlation_id="c",
    )

    lease = await parked.taken_up(db, held.id)
    [signal] = await observe_signals(db, lease)

    assert (signal.signal_name, signal.payload, signal.encoding) == ("go", b"x", "raw")
    assert (signal.source_identity, signal.correlation_id) == ("ann", "c")
    assert signal.accepted_at == await clock.now()


async def test_of_all_conditions_it_is_the_first_match_of_each_in_order_of_arrival(
    db: Connection, clock: Clock
) -> None:
    condition = AllConditions((Single("a", "go"), Single("b"), CountOf(2, ("c",), "signals")))
    held = await parked.suspended(
        db, ask(await given.claimed(db), bindings=THREE, condition=condition)
    )
    by_key = {each.waitpoint_key: each for each in held.answer.waitpoints}
    for waitpoint_key, name in [
        ("c", "1"),
        ("b", "2"),
        ("c", "3"),
        ("b", "4"),
        ("a", "x"),
        ("a", "go"),
    ]:
        await deliver(db, held.id, by_key[waitpoint_key], name)
        await clock.advance(1)

    assert await observed(db, held) == ["1", "2", "3", "go"]


async def test_of_a_count_it_is_the_first_of_each_that_is_distinct(
    db: Connection, clock: Clock
) -> None:
    condition = CountOf(2, ("a", "b", "c"), "sources", "yes")
    held = await parked.suspended(
        db, ask(await given.claimed(db), bindings=THREE, condition=condition)
    )
    for place, who in enumerate(("ann", "ann", "bob")):
        await deliver(
            db,
            held.id,
            held.answer.waitpoints[place],
            "yes",
            source_identity=who,
            payload=b"%d" % place,
        )
        await clock.advance(1)

    lease = await parked.taken_up(db, held.id)
    signals = await observe_signals(db, lease)

    assert [(each.source_identity, each.payload) for each in signals] == [
        ("ann", b"0"),
        ("bob", b"2"),
    ]


async def test_there_is_none_without_a_suspension(db: Connection) -> None:
    assert await observe_signals(db, await given.claimed(db)) == []


async def test_there_is_none_while_the_suspension_is_open_or_open_again(db: Connection) -> None:
    held = await parked.parked(db)
    assert await observe_signals(db, held.lease) == []
    await deliver(db, held.id, held.waitpoint)
    lease = await parked.taken_up(db, held.id)
    assert len(await observe_signals(db, lease)) == 1

    await parked.suspended(db, ask(lease))

    assert await observe_signals(db, lease) == []


async def test_there_is_none_in_another_attempt(db: Connection) -> None:
    policy = given.retrying(backoff=FixedBackoff(delay=0))
    held = await parked.suspended(db, ask(await given.claimed(db, policy=policy)))
    await deliver(db, held.id, held.waitpoint)
    lease = await parked.taken_up(db, held.id)
    await fail(db, [Failure(lease=lease, reason="boom")])
    [task] = await claim(db, given.WORKER, ttl=30)

    assert task.lease.attempt_index == 1
    assert await observe_signals(db, task.lease) == []


@pytest.mark.parametrize("way", ["operator", "cancel"])
async def test_there_is_none_if_no_signal_closed_the_suspension(
    db: Connection, ff_engine: Engine, way: str
) -> None:
    both = AllConditions((Single("approval", "a"), Single("approval", "b")))
    held = await parked.parked(db, condition=both)
    await deliver(db, held.id, held.waitpoint, "a")
    if way == "operator":
        await ff_engine.resume_execution(held.id)
    else:
        await cancel_execution(db, held.id, reason="no")

    assert await observe_signals(db, held.lease) == []
    assert msgspec.json.decode((await parked.waitpoints(db, held.id))[0]["signals"]) != []
