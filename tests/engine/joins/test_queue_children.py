"""A parent that comes to no good end takes its children with it."""

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.cancel_siblings import AT_ONCE
from flowfabric.ids import ExecutionId
from flowfabric.joins import AnyOf, Quorum
from flowfabric.policy import FixedBackoff
from tests import given
from tests.engine.joins import parents

WITH_IT = ("cancelled", "parent_ended", "engine")


@pytest.mark.parametrize("letter", "FCE")
@pytest.mark.parametrize("waits", [True, False], ids=["waiting", "running"])
async def test_its_children_are_cancelled_wherever_they_stand(
    ff_engine: Engine, db: Connection, letter: str, waits: bool
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("abcd")
    await family.claim("b")
    await family.complete("c")
    if waits:
        await family.put_down()

    await (family.cancel("p") if waits else family.end("p", letter))
    await family.settle()

    assert [await family.why(name) for name in "abd"] == [WITH_IT] * 3
    assert await family.state("c") == "completed"
    assert await given.lease_events(db, family["b"]) == [
        ("acquired", None),
        ("revoked", "cancelled"),
    ]
    assert await family.count("pending_cancel_groups") == 0


async def test_the_children_of_every_call_are_cancelled(ff_engine: Engine, db: Connection) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("a")
    await family.spawn("b", position=1, policy=AnyOf())
    await family.spawn("cd", position=2, policy=Quorum(1, "let_run"))
    await family.complete("c")
    await family.settle()

    await family.fail("p")
    await family.settle()

    assert [await family.why(name) for name in "abd"] == [WITH_IT] * 3


async def test_the_children_of_children_too(ff_engine: Engine, db: Connection) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("ab")
    [lease] = await family.claim("a")
    below = parents.Family(ff_engine, lease)
    await below.spawn("xy")
    await below.put_down()

    await family.cancel("p")
    await family.settle()

    assert [await below.why(name) for name in "pxy"] == [WITH_IT] * 3


async def test_the_engine_carries_it_to_the_end_at_once(ff_engine: Engine, db: Connection) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("ab")
    await family.put_down()
    await ff_engine.cancel_execution(family.parent, reason="no")

    await ff_engine.dispatch()

    assert [await family.why(name) for name in "ab"] == [WITH_IT] * 2


async def test_a_success_leaves_children_alone(ff_engine: Engine, db: Connection) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("ab")

    await family.complete("p")
    await family.settle()

    assert await family.states() == "a:w b:w p:ok"


async def test_an_attempt_that_is_tried_again_leaves_children_alone(
    ff_engine: Engine, db: Connection
) -> None:
    at_once = given.retrying(3, backoff=FixedBackoff(delay=0))
    family = await parents.parent(ff_engine, db, policy=at_once)
    await family.spawn("ab")

    await ff_engine.fail([parents.failing(family.lease)])
    await family.settle()

    assert await family.states() == "a:w b:w p:w"


async def test_detached_children_live_on(ff_engine: Engine, db: Connection) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("a")
    await ff_engine.spawn_children(family.lease, family.born("x", position=1), group=None)

    await family.fail("p")
    await family.settle()

    assert await family.state("a") == "cancelled"
    assert await family.state("x") == "waiting"


async def test_other_members_of_the_flow_live_on(ff_engine: Engine, db: Connection) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("ab")
    [lease] = await family.claim("a")
    below = parents.Family(ff_engine, lease)
    await below.spawn("x")

    await family.fail("a")
    await family.settle()

    assert await below.why("x") == WITH_IT
    assert (await family.state("p"), await family.state("b")) == ("active", "waiting")


async def test_a_parent_that_runs_again_by_then_keeps_its_children(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("ab")
    await family.fail("p")
    await family.replay("p")

    await family.settle()

    assert await family.states() == "a:w b:w p:w"


async def test_a_large_family_is_cancelled_turn_by_turn(ff_engine: Engine, db: Connection) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn(
        [
            given.new(execution_id=ExecutionId(family.parent.partition_key, each))
            for each in (given.new().execution_id.uuid for _ in range(AT_ONCE + 10))
        ]
    )
    await family.fail("p")
    await family.carry_all()

    await family.tick()
    assert await family.count("pending_cancel_groups") == 1
    await family.tick()

    cancelled = await db.fetchval(
        "SELECT count(*) FROM ff.execution WHERE public_state = 'cancelled'"
    )
    assert cancelled == AT_ONCE + 10
    assert await family.count("pending_cancel_groups") == 0


# What the flow says of it.


@pytest.mark.parametrize(("letter", "state"), [("S", "completed"), ("F", "failed")])
async def test_a_failed_child_is_made_up_for_by_its_parents_success(
    ff_engine: Engine, db: Connection, letter: str, state: str
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("ab")
    await family.complete("a")
    await family.fail("b")
    await family.settle()
    assert await family.waited() == "1/1/0/0 impossible"

    await family.end("p", letter)
    await family.settle()

    assert await family.derived() == state
