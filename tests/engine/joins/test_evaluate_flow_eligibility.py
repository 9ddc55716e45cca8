"""What its dependencies say of an execution; nothing changes."""

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.evaluate_flow_eligibility import FlowEligibility
from flowfabric.ids import ExecutionId
from flowfabric.joins import AnyOf
from tests import given
from tests.engine.controls import RUNNABLE, TERMINAL, execution
from tests.engine.flows.graphs import empty, submitted
from tests.engine.joins import parents

SUSPENDED = (
    "UPDATE ff.exec_core SET lifecycle_phase = 'suspended', eligibility_state = 'not_applicable',"
    " blocking_reason = 'waiting_for_signal', attempt_state = 'attempt_interrupted'"
)


async def said(engine: Engine, execution_id: ExecutionId) -> str:
    return (await engine.evaluate_flow_eligibility(execution_id)).value


async def test_one_that_is_not_there_is_not_found(ff_engine: Engine) -> None:
    assert await said(ff_engine, given.new().execution_id) == "not_found"


@pytest.mark.parametrize("state", RUNNABLE)
async def test_one_that_depends_on_nothing_is_eligible(
    db: Connection, ff_engine: Engine, state: str
) -> None:
    assert await said(ff_engine, await execution(db, state)) == "eligible"


async def test_one_that_was_held_and_has_no_edge_is_eligible(
    db: Connection, ff_engine: Engine
) -> None:
    held = await given.created(db, hold=True)
    before = await given.everything(db)

    assert await said(ff_engine, held) == "eligible"

    assert await given.everything(db) == before


async def test_one_that_runs_is_owned_and_one_that_has_ended_is_terminal(
    db: Connection, ff_engine: Engine
) -> None:
    assert await said(ff_engine, await execution(db, "active")) == "owned"
    for state in TERMINAL:
        assert await said(ff_engine, await execution(db, state)) == "terminal"


async def test_one_that_is_suspended_is_not_runnable(db: Connection, ff_engine: Engine) -> None:
    execution_id = await given.created(db)
    await db.execute(SUSPENDED)

    assert await said(ff_engine, execution_id) == "not_runnable"


async def test_a_member_is_blocked_until_its_group_is_satisfied(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>d b>d")
    answers = [await said(ff_engine, flow["d"])]
    for name in "ab":
        await flow.complete(name)
        answers.append(await said(ff_engine, flow["d"]))
        await flow.carry_all()
        answers.append(await said(ff_engine, flow["d"]))

    assert answers == ["blocked_by_dependencies"] * 4 + ["eligible"]


async def test_a_policy_without_an_edge_blocks_nobody(ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "d")
    await ff_engine.set_edge_group_policy(flow.flow_id, flow["d"], AnyOf(), expected_n=2)

    assert await said(ff_engine, flow["d"]) == "eligible"
    await flow.link("a>d")
    assert await said(ff_engine, flow["d"]) == "blocked_by_dependencies"


async def test_one_whose_group_is_lost_and_that_is_not_skipped_yet_is_impossible(
    ff_engine: Engine,
) -> None:
    flow = await submitted(ff_engine, "a>d")
    await flow.fail("a")
    await ff_engine.cancel_flow_header(flow.flow_id)
    await flow.carry_all()

    assert await said(ff_engine, flow["d"]) == "impossible"


async def test_a_parent_is_blocked_by_the_children_it_has_let_go_for(
    db: Connection, ff_engine: Engine
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("ab")
    assert await said(ff_engine, family.parent) == "owned"

    await family.put_down()

    assert await said(ff_engine, family.parent) == "blocked_by_dependencies"
    await family.complete("a", "b")
    await family.settle()
    assert await said(ff_engine, family.parent) == "eligible"


async def test_a_parent_that_was_interrupted_before_it_let_go_is_eligible(
    db: Connection, ff_engine: Engine
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("a")
    await ff_engine.release([family.lease])

    assert await said(ff_engine, family.parent) == "eligible"


def test_the_words_come_in_the_order_in_which_they_are_asked() -> None:
    assert [word.value for word in FlowEligibility] == [
        "not_found",
        "not_runnable",
        "owned",
        "terminal",
        "impossible",
        "blocked_by_dependencies",
        "eligible",
    ]
