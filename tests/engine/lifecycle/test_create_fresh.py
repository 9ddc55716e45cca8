"""absent → runnable with ids that were just made: a plain INSERT, the same rows and answers."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lanes.set_lane_state import set_lane_state
from flowfabric.engine.lifecycle.create_execution import (
    Created,
    Duplicate,
    NewExecution,
    create_execution,
)
from flowfabric.errors import LaneNotAccepting, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy, TimeoutPolicy
from flowfabric.testing import Clock
from tests import given

Another = Callable[[], Awaitable[Connection]]


def mixed() -> list[NewExecution]:
    """One execution for each field that a plain INSERT stores, and one that has none of them."""
    policy = ExecutionPolicy(timeout_policy=TimeoutPolicy(execution_deadline=60))
    return [
        given.new(),
        given.new(priority=7, input_payload=b"{}", payload_encoding="json"),
        given.new(priority=10**6, lane_id="other", creator_identity="me"),
        given.new(tags={"shop.tenant": "a", "shop.colour": "red"}),
        given.new(idempotency_key="order-7", idempotency_window=5),
        given.new(deadline=30),
        given.new(policy=policy, required_capabilities=("gpu",)),
        given.new(flow_id=given.new().execution_id.uuid, member_name="a"),
    ]


@pytest.mark.parametrize(
    "more", [{}, {"delay": 5}, {"hold": True}, {"hold": True, "delay": 5}], ids=str
)
async def test_a_fresh_batch_is_stored_and_answered_as_any_other(
    db: Connection, clock: Clock, more: dict[str, Any]
) -> None:
    batch = [*mixed(), given.new(**more)]
    stored: list[object] = []
    for fresh in (False, True):
        transaction = db.transaction()
        await transaction.start()
        answers = await create_execution(db, batch, fresh=fresh)
        stored.append((answers, await given.everything(db)))
        await transaction.rollback()

    assert stored[0] == stored[1]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"payload_encoding": "json", "creator_identity": "me", "required_capabilities": ("gpu",)},
        {"policy": ExecutionPolicy()},
        {"policy": ExecutionPolicy(timeout_policy=TimeoutPolicy(execution_deadline=60))},
        {"policy": ExecutionPolicy(budget_ids=("tokens",))},
        {"priority": 7},
        {"tags": {"shop.tenant": "a"}},
        {"deadline": 30},
        {"delay": 5},
        {"hold": True},
        {"member_name": "a"},
    ],
    ids=str,
)
async def test_fresh_executions_that_are_alike_are_stored_as_any_other(
    db: Connection, clock: Clock, fields: dict[str, Any]
) -> None:
    alike = [given.new(input_payload=payload, **fields) for payload in (b"1", b"22", b"333")]
    stored: list[object] = []
    for fresh in (False, True):
        transaction = db.transaction()
        await transaction.start()
        answers = await create_execution(db, alike, fresh=fresh)
        stored.append((answers, await given.everything(db)))
        await transaction.rollback()

    assert stored[0] == stored[1]


async def test_a_fresh_batch_finds_the_executions_of_its_keys_and_creates_the_others(
    db: Connection,
) -> None:
    existing = await given.created(db, idempotency_key="order-1")
    batch = [given.new(idempotency_key=f"order-{n}") for n in (1, 2, 2)] + [given.new()]

    found, first, second, unkeyed = await create_execution(db, batch, fresh=True)

    assert found == Duplicate(execution_id=existing)
    assert isinstance(first, Created)
    assert second == Duplicate(execution_id=first.execution_id)
    assert isinstance(unkeyed, Created)
    assert await db.fetchval("SELECT count(*) FROM ff.exec_body") == 3


async def test_fresh_batches_with_the_same_keys_in_opposite_order_do_not_deadlock(
    db: Connection, another: Another
) -> None:
    first, second = await another(), await another()
    forth = [given.new(idempotency_key=f"key-{n}") for n in range(20)]
    back = [given.new(idempotency_key=f"key-{n}") for n in reversed(range(20))]
    async with first.transaction():
        created = await create_execution(first, forth, fresh=True)
        waiting = await given.blocked(db, second, create_execution(second, back, fresh=True))

    assert await waiting == [Duplicate(execution_id=a.execution_id) for a in reversed(created)]


async def test_an_expired_key_is_taken_over_by_a_fresh_execution(
    db: Connection, clock: Clock
) -> None:
    await given.created(db, idempotency_key="order-7", idempotency_window=5)
    await clock.advance(timedelta(seconds=5))
    new = given.new(idempotency_key="order-7")

    [answer] = await create_execution(db, [new], fresh=True)

    assert isinstance(answer, Created)
    assert answer.execution_id == new.execution_id


async def test_a_fresh_batch_for_a_closed_lane_is_refused_as_a_whole(db: Connection) -> None:
    await given.created(db, lane_id="shut")
    await set_lane_state(db, "shut", "draining")

    with pytest.raises(LaneNotAccepting, match="shut"):
        await create_execution(db, [given.new(), given.new(lane_id="shut")], fresh=True)

    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 1


async def test_a_fresh_execution_whose_deadline_has_passed_is_refused(
    db: Connection, clock: Clock
) -> None:
    late = given.new(execution_deadline_at=await clock.now() - timedelta(seconds=1))

    with pytest.raises(ValidationError, match="is in the past"):
        await create_execution(db, [given.new(), late], fresh=True)

    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 0


async def test_a_promise_of_fresh_ids_that_is_broken_is_an_error_and_changes_nothing(
    db: Connection,
) -> None:
    existing = await given.created(db)
    before = await given.everything(db)

    with pytest.raises(Exception, match="exec_core_pkey"):
        await create_execution(db, [given.new(), given.new(execution_id=existing)], fresh=True)

    assert await given.everything(db) == before


def test_an_execution_like_another_has_its_own_id_and_payload() -> None:
    first = given.new(priority=3, tags={"shop.tenant": "a"}, deadline=5)
    minted = ExecutionId.mint()

    second = first.like(minted, b"2")

    assert second == msgspec.structs.replace(first, execution_id=minted, input_payload=b"2")
    assert first.input_payload != b"2"
    with pytest.raises(ValidationError, match="input_payload must be bytes"):
        first.like(minted, "2")  # pyright: ignore[reportArgumentType]
