"""How a wait for children stands, and that a decision stays."""

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId, children_group_id
from flowfabric.joins import AllOf, AnyOf, JoinPolicy, Quorum
from flowfabric.testing import Clock
from tests.engine.joins import parents


async def test_a_join_that_nobody_began_is_not_there(ff_engine: Engine) -> None:
    with pytest.raises(NotFound, match="join"):
        await ff_engine.read_join(children_group_id(ExecutionId.mint(), 0))


async def test_an_open_wait_tells_of_nobody(ff_engine: Engine, db: Connection) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("abc")
    await family.complete("b")
    await family.settle()

    assert await family.read() == ("pending", [], [])
    assert await family.waited() == "1/0/0/2 pending"


@pytest.mark.parametrize(
    ("policy", "ends", "decided"),
    [
        (AllOf(), "cS aS bS", ("satisfied", ["c", "a", "b"], [])),
        (AllOf(), "cS bF aS", ("impossible", ["c"], ["b"])),
        (AnyOf("let_run"), "bF cS aS", ("satisfied", ["c"], ["b"])),
        (AnyOf("let_run"), "bF cC aE", ("impossible", [], ["b", "c", "a"])),
        (Quorum(2, "let_run"), "cS bF aS", ("satisfied", ["c", "a"], ["b"])),
        (Quorum(2, "let_run"), "cF bK aS", ("impossible", [], ["c", "b"])),
        (Quorum(4, "let_run"), "cF bS aS", ("impossible", ["b", "a"], ["c"])),
        (Quorum(4, "let_run"), "cS bS aS", ("impossible", ["c", "b", "a"], [])),
    ],
    ids=str,
)
async def test_a_decision_stays_whoever_ends_later(
    ff_engine: Engine,
    db: Connection,
    clock: Clock,
    policy: JoinPolicy,
    ends: str,
    decided: tuple[str, list[str], list[str]],
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("abc", policy=policy)
    await family.put_down()

    for name, letter in ends.split():
        await clock.advance(1)
        await family.end(name, letter)
        await family.settle()

    assert await family.read() == decided
    assert await family.state("p") == "waiting"


async def test_of_more_successes_than_are_needed_the_first_to_end_count(
    ff_engine: Engine, db: Connection, clock: Clock
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("abc", policy=Quorum(2, "let_run"))

    await family.complete("c", "b", "a")
    await family.settle()

    assert await family.read() == ("satisfied", ["c", "b", "a"], [])


async def test_as_long_as_a_child_runs_a_wait_for_all_ends_is_open(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("abc", policy=Quorum(4, "let_run"))
    await family.put_down()

    await family.fail("a")
    await family.complete("b")
    await family.settle()
    assert await family.state("p") == "waiting_children"
    await family.fail("c")
    await family.settle()

    assert await family.state("p") == "waiting"
