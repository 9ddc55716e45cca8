"""runnable → runnable: an execution that waits for a worker changes its place in the queue."""

from typing import Any

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.operators.change_priority import PriorityChanged, change_priority
from flowfabric.errors import ExecutionNotEligible, NotFound, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases
from tests.engine.controls import (
    NO_DATABASE,
    TERMINAL,
    WAITING,
    Action,
    Another,
    actions,
    bad_actors,
    execution,
    waiting,
)


async def test_what_is_raised_is_claimed_first(db: Connection, clock: Clock) -> None:
    await given.created(db, priority=5)
    second = await given.created(db, priority=3)
    await clock.advance(5)

    answer = await change_priority(db, second, 7)

    assert answer == PriorityChanged(execution_id=second, priority=7)
    stored = await given.row(db, second)
    assert (stored["priority"], stored["last_mutation_at_ms"]) == (7, await clock.now_ms())
    [task] = await claim(db, given.WORKER, ttl=30)
    assert task.lease.execution_id == second


async def test_what_is_lowered_is_claimed_later(db: Connection) -> None:
    first = await given.created(db, priority=5)
    second = await given.created(db, priority=3)

    await change_priority(db, first, 0)

    [task] = await claim(db, given.WORKER, ttl=30)
    assert task.lease.execution_id == second


async def test_one_operator_event_tells_who_why_and_both_priorities(db: Connection) -> None:
    execution_id = await given.created(db, priority=3)

    await change_priority(db, execution_id, 7, actor="alice", reason="a customer waits")

    assert await actions(db, execution_id) == [
        Action(
            "priority_changed",
            "alice",
            "a customer waits",
            {"old_priority": 3, "new_priority": 7},
        )
    ]
    assert await given.lease_events(db, execution_id) == []
    assert await given.completion_events(db, execution_id) == []


async def test_its_event_carries_route_and_tags_of_the_execution(db: Connection) -> None:
    execution_id = await given.created(db, tags={"cairn.instance_id": "i-7"})

    await change_priority(db, execution_id, 7)

    [event] = await db.fetch("SELECT * FROM ff.operator_event")
    assert event["route_id"] == (await given.row(db, execution_id))["route_id"]
    assert msgspec.json.decode(event["tags"]) == {"cairn.instance_id": "i-7"}


async def test_only_the_priority_changes(db: Connection) -> None:
    execution_id = await given.created(db, priority=3)
    before = await given.row(db, execution_id)

    await change_priority(db, execution_id, 7)

    after = await given.row(db, execution_id)
    assert {name for name in after if after[name] != before[name]} <= {
        "priority",
        "last_mutation_at_ms",
    }


@pytest.mark.parametrize(
    ("wanted", "stored"), [(-1, 0), (0, 0), (9000, 9000), (9001, 9000), (10**30, 9000)]
)
async def test_a_priority_is_clamped_to_0_and_9000(
    db: Connection, wanted: int, stored: int
) -> None:
    execution_id = await given.created(db, priority=3)

    answer = await change_priority(db, execution_id, wanted)

    assert answer.priority == stored
    assert (await given.row(db, execution_id))["priority"] == stored
    [told] = await actions(db, execution_id)
    assert told.details == {"old_priority": 3, "new_priority": stored}


async def test_the_same_value_is_told_too(db: Connection) -> None:
    execution_id = await given.created(db, priority=3)

    await change_priority(db, execution_id, 3)
    await change_priority(db, execution_id, 3)

    assert [told.details for told in await actions(db, execution_id)] == [
        {"old_priority": 3, "new_priority": 3},
        {"old_priority": 3, "new_priority": 3},
    ]


@pytest.mark.parametrize("state", WAITING)
async def test_whatever_waits_for_a_worker_can_be_raised(db: Connection, state: str) -> None:
    execution_id = await execution(db, state)

    assert (await change_priority(db, execution_id, 7)).priority == 7


@pytest.mark.parametrize("state", ["delayed", "retrying", "blocked", "active", *TERMINAL])
async def test_whatever_does_not_is_left_as_it_is(db: Connection, clock: Clock, state: str) -> None:
    execution_id = await execution(db, state)
    before = await given.everything(db)

    with pytest.raises(ExecutionNotEligible) as raised:
        await change_priority(db, execution_id, 7)

    assert raised.value.public_state == await given.public_state(db, execution_id)
    assert await given.everything(db) == before


async def test_what_is_not_there_has_no_priority(db: Connection) -> None:
    with pytest.raises(NotFound) as raised:
        await change_priority(db, ExecutionId.mint(), 7)

    assert raised.value.entity == "execution"
    assert await actions(db) == []


@all_cases("priority", [1.5, "7", None, True, b"7"])
async def test_what_is_no_whole_number_is_refused_before_any_sql(priority: Any) -> None:
    with pytest.raises(ValidationError, match="new_priority") as raised:
        await change_priority(NO_DATABASE, ExecutionId.mint(), priority)

    assert raised.value.code == "invalid_input"


@bad_actors
async def test_an_actor_that_cannot_be_stored_is_refused_before_any_sql(actor: str) -> None:
    with pytest.raises(ValidationError, match="actor"):
        await change_priority(NO_DATABASE, ExecutionId.mint(), 7, actor=actor)


async def test_a_change_that_waited_for_a_claim_comes_too_late(
    db: Connection, another: Another, ff_engine: Engine
) -> None:
    execution_id = await given.created(db, priority=3)
    worker = await another()
    async with worker.transaction():
        [task] = await claim(worker, given.WORKER, ttl=30)
        changing = await waiting(db, ff_engine.change_priority(execution_id, 7))

    with pytest.raises(ExecutionNotEligible):
        await changing
    assert task.lease.execution_id == execution_id
    assert (await given.row(db, execution_id))["priority"] == 3
    assert await actions(db) == []


async def test_a_claim_passes_over_what_is_being_changed_and_takes_it_afterwards(
    db: Connection, another: Another
) -> None:
    execution_id = await given.created(db, priority=3)
    operator, worker = await another(), await another()
    async with operator.transaction():
        await change_priority(operator, execution_id, 7)
        assert await claim(worker, given.WORKER, ttl=30) == []

    [task] = await claim(worker, given.WORKER, ttl=30)
    assert task.lease.execution_id == execution_id
    assert (await given.row(db, execution_id))["priority"] == 7


async def test_of_two_changes_at_once_the_second_starts_from_the_first(
    db: Connection, another: Another, ff_engine: Engine
) -> None:
    execution_id = await given.created(db, priority=3)
    operator = await another()
    async with operator.transaction():
        await change_priority(operator, execution_id, 5)
        changing = await waiting(db, ff_engine.change_priority(execution_id, 7))

    assert (await changing).priority == 7
    assert [told.details for told in await actions(db, execution_id)] == [
        {"old_priority": 3, "new_priority": 5},
        {"old_priority": 5, "new_priority": 7},
    ]
