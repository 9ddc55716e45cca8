"""An operator's block and an edge on the same member: neither lifts the other."""

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.apply_dependency_to_child import apply_dependency_to_child
from flowfabric.engine.joins.dispatch_completions import dispatch_completions
from tests.engine.controls import Another, actions, waiting
from tests.engine.flows.graphs import Graph, empty


async def paused(engine: Engine) -> Graph:
    """d is held back by an operator, and then made to wait for a."""
    flow = await empty(engine, "a", "d")
    await engine.block_execution_for_admission(
        flow["d"], "paused_by_operator", detail="ask first", actor="ann"
    )
    assert await flow.link("a>d") == 1
    return flow


async def test_an_operators_block_outlasts_an_edge(ff_engine: Engine) -> None:
    flow = await paused(ff_engine)

    row = await flow.row("d")

    assert (row["eligibility_state"], row["blocking_reason"], row["blocking_detail"]) == (
        "blocked_by_operator",
        "paused_by_operator",
        "ask first",
    )


async def test_one_that_is_unblocked_waits_for_its_upstream_then(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await paused(ff_engine)

    unblocked = await ff_engine.unblock_execution(flow["d"])

    assert unblocked.eligibility_state == "blocked_by_dependencies"
    assert await flow.states() == "a:w d:wc"
    [*_, action] = await actions(db, flow["d"])
    assert action.details["new_eligibility_state"] == "blocked_by_dependencies"
    await flow.complete("a")
    await flow.carry_all()
    assert await flow.states() == "a:ok d:w"


@pytest.mark.parametrize("dispatched", [True, False])
async def test_one_whose_upstream_succeeds_stays_blocked_until_it_is_let_go(
    ff_engine: Engine, dispatched: bool
) -> None:
    flow = await empty(ff_engine, "a", "d")
    await ff_engine.block_execution_for_admission(flow["d"], "paused_by_operator")
    if dispatched:
        await flow.link("a>d")
    await flow.complete("a")
    await flow.carry_all()
    if not dispatched:
        await flow.link("a>d")

    assert (await flow.row("d"))["blocking_reason"] == "paused_by_operator"
    unblocked = await ff_engine.unblock_execution(flow["d"])

    assert unblocked.eligibility_state == "eligible_now"
    assert await flow.states() == "a:ok d:w"


async def test_one_that_is_blocked_is_skipped_when_its_upstream_fails(ff_engine: Engine) -> None:
    flow = await paused(ff_engine)

    await flow.fail("a")
    await flow.carry_all()

    assert await flow.states() == "a:f d:k"


async def test_one_that_ran_before_its_edge_came_is_claimable_once_it_is_unblocked(
    ff_engine: Engine,
) -> None:
    flow = await empty(ff_engine, "a", "d")
    [lease] = await flow.claim("d")
    await flow.link("a>d")
    await ff_engine.release([lease])
    await ff_engine.block_execution_for_admission(flow["d"], "paused_by_operator")

    unblocked = await ff_engine.unblock_execution(flow["d"])

    assert unblocked.eligibility_state == "eligible_now"


async def test_an_operator_who_waits_for_the_edge_lets_it_go_to_its_upstream(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await empty(ff_engine, "a", "d")
    await ff_engine.block_execution_for_admission(flow["d"], "paused_by_operator")
    edge_id = await flow.stage("a>d")
    builder = await another()
    async with builder.transaction():
        await apply_dependency_to_child(builder, flow.flow_id, edge_id)
        unblocking = await waiting(db, ff_engine.unblock_execution(flow["d"]))

    assert (await unblocking).eligibility_state == "blocked_by_dependencies"


async def test_an_operator_who_waits_for_the_promotion_lets_it_go(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await paused(ff_engine)
    await flow.complete("a")
    carrier = await another()
    async with carrier.transaction():
        await dispatch_completions(carrier)
        unblocking = await waiting(db, ff_engine.unblock_execution(flow["d"]))

    assert (await unblocking).eligibility_state == "eligible_now"
    assert await flow.states() == "a:ok d:w"
