"""active → runnable(waiting for children): the holder lets go, and no wake-up is lost."""

from collections.abc import Awaitable, Callable
from uuid import uuid4

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.dispatch_completions import dispatch_completions
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.end_parked_members import end_parked_members
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.lifecycle.wait_children import (
    ChildWait,
    NothingToWaitFor,
    WaitingChildren,
    wait_children,
)
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.errors import ExecutionNotActive, LeaseExpired, NotFound, StaleLease
from flowfabric.ids import ExecutionId, GroupId
from flowfabric.joins import AnyOf
from flowfabric.states import GroupState
from flowfabric.testing import Clock
from tests import given
from tests.engine.flows.graphs import end_all
from tests.engine.joins.parents import Family, parent

Another = Callable[[], Awaitable[Connection]]

WAITING = (
    "runnable/blocked_by_dependencies/waiting_for_children/none/attempt_interrupted"
    " → waiting_children"
)


def ask(family: Family, position: int = 0) -> ChildWait:
    return ChildWait(lease=family.lease, groups=(family.join(position),))


# Row 17.


async def test_an_attempt_is_put_down_until_its_wait_is_decided(
    ff_engine: Engine, db: Connection, clock: Clock
) -> None:
    family = await parent(ff_engine, db)
    began = await clock.now_ms()
    await family.spawn("ab")
    await clock.advance(5)

    [answer] = await wait_children(db, [ask(family)])

    assert answer == WaitingChildren(execution_id=family.parent)
    assert await given.standing(db, family.parent) == WAITING
    stored, now = await given.row(db, family.parent), await clock.now_ms()
    assert stored == stored | {
        "attempt_index": 0,
        "total_attempt_count": 1,
        "retry_count": 0,
        "lease_reclaim_count": 0,
        "lease_epoch": family.lease.lease_epoch,
        "lease_expires_at_ms": None,
        "worker_instance_id": None,
        "attempt_timeout_at_ms": None,
        "delay_until_ms": None,
        "last_mutation_at_ms": now,
    }
    assert await given.lease_events(db, family.parent) == [
        ("acquired", None),
        ("revoked", "waiting_children"),
    ]
    assert await given.completion_events(db, family.parent) == []
    [attempt] = await given.attempts(db, family.parent)
    assert attempt == attempt | {
        "outcome": "waiting_children",
        "started_at_ms": began,
        "ended_at_ms": now,
        "worker_instance_id": "w-1",
    }


@pytest.mark.parametrize("letter", "SF")
async def test_it_goes_on_in_the_same_attempt(
    ff_engine: Engine, db: Connection, clock: Clock, letter: str
) -> None:
    family = await parent(ff_engine, db)
    began = await clock.now_ms()
    await family.spawn("ab")
    await family.put_down()
    assert await claim(db, given.OTHER, ttl=30) != []  # a
    assert await claim(db, given.OTHER, ttl=30) != []  # b, not the parent
    assert await claim(db, given.OTHER, ttl=30) == []
    children = [family["a"], family["b"]]
    await family.transact(lambda conn: end_all(conn, children, letter))
    await clock.advance(5)

    await family.settle()
    [claimed] = await claim(db, given.OTHER, ttl=30)

    assert claimed.lease.execution_id == family.parent
    assert (claimed.lease.attempt_index, claimed.attempt_type) == (0, "initial")
    assert claimed.lease.lease_epoch == family.lease.lease_epoch + 1
    stored = await given.row(db, family.parent)
    assert (stored["attempt_started_at_ms"], stored["total_attempt_count"]) == (began, 1)
    await complete(db, [Completion(claimed.lease, b"done")])
    [attempt] = await given.attempts(db, family.parent)
    assert (attempt["outcome"], attempt["result"]) == ("success", b"done")


async def test_a_wait_of_another_call_wakes_it_too(ff_engine: Engine, db: Connection) -> None:
    family = await parent(ff_engine, db)
    await family.spawn("a")
    await family.spawn("b", position=1)
    await family.put_down(1)

    await family.complete("a")
    await family.settle()

    assert await family.state("p") == "waiting"
    await family.take_up()
    await family.put_down(1)
    assert await family.state("p") == "waiting_children"


# Refused, and nothing is written.


@pytest.mark.parametrize(("letter", "state"), [("S", "satisfied"), ("F", "impossible")])
async def test_a_wait_that_is_decided_is_not_waited_for(
    ff_engine: Engine, db: Connection, letter: str, state: str
) -> None:
    family = await parent(ff_engine, db)
    await family.spawn("a")
    await family.end("a", letter)
    await family.settle()
    before = await given.everything(db)

    [answer] = await wait_children(db, [ask(family)])

    assert answer == NothingToWaitFor(execution_id=family.parent, group_state=GroupState(state))
    assert await given.everything(db) == before


async def test_a_wait_of_nobody_or_of_another_is_not_waited_for(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parent(ff_engine, db)
    await family.spawn("a")
    [lease] = await family.claim("a")
    before = await given.everything(db)

    answers = await wait_children(
        db,
        [
            ChildWait(lease=family.lease, groups=(GroupId(family.parent.partition_key, uuid4()),)),
            ChildWait(lease=lease, groups=(family.join(),)),
        ],
    )

    assert answers == [
        NothingToWaitFor(execution_id=family.parent, group_state=None),
        NothingToWaitFor(execution_id=family["a"], group_state=None),
    ]
    assert await given.everything(db) == before


async def test_the_fence_comes_first(ff_engine: Engine, db: Connection, clock: Clock) -> None:
    family = await parent(ff_engine, db, ttl=30)
    await family.spawn("a")
    before = await given.everything(db)
    missing = ExecutionId.mint()
    elsewhere = msgspec.structs.replace(family.lease, execution_id=missing)
    forged = msgspec.structs.replace(family.lease, lease_id=uuid4())

    answers = await wait_children(
        db, [ChildWait(lease=each, groups=(family.join(),)) for each in (elsewhere, forged)]
    )
    assert [type(answer) for answer in answers] == [NotFound, StaleLease]
    await clock.advance(30)
    [late] = await wait_children(db, [ask(family)])
    assert isinstance(late, LeaseExpired)
    assert await given.everything(db) == before

    await expire_leases(db, 10)
    [gone] = await wait_children(db, [ask(family)])
    assert isinstance(gone, ExecutionNotActive)


async def test_a_refusal_does_not_spoil_its_neighbours(ff_engine: Engine, db: Connection) -> None:
    one, two, three = [await parent(ff_engine, db) for _ in range(3)]
    for family in (one, two, three):
        await family.spawn("a")
    await two.complete("a")
    await two.settle()

    answers = await wait_children(db, [ask(family) for family in (one, two, three)])

    assert [type(answer) for answer in answers] == [
        WaitingChildren,
        NothingToWaitFor,
        WaitingChildren,
    ]
    assert await given.public_state(db, two.parent) == "active"
    assert await wait_children(db, []) == []


async def test_the_same_call_again_after_a_lost_answer_is_answered_again(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parent(ff_engine, db)
    await family.spawn("a")
    await wait_children(db, [ask(family)])
    before = await given.everything(db)

    assert await wait_children(db, [ask(family)]) == [WaitingChildren(execution_id=family.parent)]
    assert await given.everything(db) == before

    await family.complete("a")
    await family.settle()
    assert await wait_children(db, [ask(family)]) == [WaitingChildren(execution_id=family.parent)]
    await claim(db, given.OTHER, ttl=30)
    [stale] = await wait_children(db, [ask(family)])
    assert isinstance(stale, StaleLease)


async def test_what_was_released_was_not_put_down_by_this_call(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parent(ff_engine, db)
    await family.spawn("a")
    await release(db, [family.lease])

    [answer] = await wait_children(db, [ask(family)])

    assert isinstance(answer, ExecutionNotActive)


async def test_a_member_of_a_flow_that_lets_nothing_start_again_ends(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parent(ff_engine, db)
    await family.spawn("a")
    await family.claim("a")
    await ff_engine.cancel_flow(family.flow_id, policy="cancel_pending", reason="enough")

    await wait_children(db, [ask(family)])
    assert await end_parked_members(db, 10) == 1

    assert await family.why("p") == ("cancelled", "enough", "cancel_flow")


# Two connections: a child ends while its parent is about to wait.


async def carried(conn: Connection) -> int:
    async with conn.transaction():
        return await dispatch_completions(conn)


async def test_a_decision_that_comes_first_is_seen_by_the_wait(
    ff_engine: Engine, db: Connection, another: Another
) -> None:
    family = await parent(ff_engine, db)
    await family.spawn("ab", policy=AnyOf("let_run"))
    await family.complete("a")
    first, second = await another(), await another()

    async with first.transaction():
        assert await dispatch_completions(first) == 1
        waiting = await given.blocked(db, second, wait_children(second, [ask(family)]))

    [answer] = await waiting
    assert answer == NothingToWaitFor(execution_id=family.parent, group_state=GroupState.SATISFIED)
    assert await given.public_state(db, family.parent) == "active"
    assert (await given.row(db, family.parent))["lease_epoch"] == family.lease.lease_epoch


async def test_a_decision_that_comes_second_wakes_the_parent(
    ff_engine: Engine, db: Connection, another: Another
) -> None:
    family = await parent(ff_engine, db)
    await family.spawn("ab", policy=AnyOf("let_run"))
    await family.complete("a")
    first, second = await another(), await another()

    async with first.transaction():
        await wait_children(first, [ask(family)])
        waiting = await given.blocked(db, second, carried(second))

    assert await waiting == 1
    assert await given.public_state(db, family.parent) == "waiting"


async def test_a_child_that_has_ended_but_was_not_carried_yet_wakes_its_parent_later(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parent(ff_engine, db)
    await family.spawn("a")
    await family.complete("a")

    await family.put_down()
    assert await family.state("p") == "waiting_children"
    await family.settle()

    assert await family.state("p") == "waiting"


async def test_a_parent_that_is_cancelled_meanwhile_does_not_wait(
    ff_engine: Engine, db: Connection, another: Another
) -> None:
    family = await parent(ff_engine, db)
    await family.spawn("a")
    first, second = await another(), await another()

    async with first.transaction():
        await cancel_execution(first, family.parent, reason="no")
        waiting = await given.blocked(db, second, wait_children(second, [ask(family)]))

    [answer] = await waiting
    assert isinstance(answer, ExecutionNotActive)
    assert await family.state("p") == "cancelled"


# Several waits.


async def test_of_several_waits_the_first_to_be_decided_counts(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parent(ff_engine, db)
    await family.spawn("a")
    await family.spawn("b", position=1)
    groups = (family.join(0), family.join(1))
    both = ChildWait(lease=family.lease, groups=groups)

    [put_down] = await wait_children(db, [both])
    assert put_down == WaitingChildren(execution_id=family.parent)
    await family.end("b", "F")
    await family.settle()
    family.lease = await family.take_up()
    [again] = await wait_children(db, [ChildWait(lease=family.lease, groups=groups)])

    assert again == NothingToWaitFor(execution_id=family.parent, group_state=GroupState.IMPOSSIBLE)
    [still] = await wait_children(db, [ChildWait(lease=family.lease, groups=groups[:1])])
    assert still == WaitingChildren(execution_id=family.parent)
