"""One that waits for dependencies, of which none is left, is let go."""

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.cancel_flow_header import cancel_flow_header
from flowfabric.engine.joins.apply_dependency_to_child import apply_dependency_to_child
from flowfabric.engine.joins.dispatch_completions import dispatch_completions
from flowfabric.engine.joins.promote_blocked_to_eligible import (
    MemberPromoted,
    promote_blocked_to_eligible,
)
from flowfabric.errors import (
    DepsNotSatisfied,
    ExecutionNotRunnable,
    ExecutionTerminal,
    FlowAlreadyTerminal,
    NotBlockedByDeps,
    NotFound,
)
from flowfabric.ids import ExecutionId
from flowfabric.joins import AnyOf
from flowfabric.states import CancellationPolicy
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import RUNNABLE, TERMINAL, Another, execution, waiting
from tests.engine.flows.graphs import Graph, empty, submitted
from tests.engine.joins import parents
from tests.engine.operators.test_cancel_flow_races import closed

BLOCK_AGAIN = (
    "WITH dequeued AS (DELETE FROM ff.ready WHERE execution_id = $1)"
    " UPDATE ff.exec_core SET eligibility_state = 'blocked_by_dependencies',"
    " blocking_reason = 'waiting_for_children' WHERE execution_id = $1"
)


# Who is let go.


async def test_one_that_was_held_and_has_no_edge_can_be_claimed(
    db: Connection, ff_engine: Engine
) -> None:
    held = await given.created(db, hold=True)

    assert await ff_engine.promote_blocked_to_eligible(held) == MemberPromoted(execution_id=held)

    assert await given.standing(db, held) == (
        "runnable/eligible_now/waiting_for_worker/none/pending_first_attempt → waiting"
    )
    [task] = await ff_engine.claim(given.WORKER, ttl=30)
    assert task.lease.execution_id == held


async def test_one_whose_time_has_not_come_is_delayed_until_then(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    held = await given.created(db, hold=True, delay=60)
    due = await clock.now_ms() + 60_000

    await ff_engine.promote_blocked_to_eligible(held)

    row = await given.row(db, held)
    assert (row["public_state"], row["delay_until_ms"]) == ("delayed", due)


async def test_a_policy_without_an_edge_holds_nobody_back(ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "d", hold=True)
    await ff_engine.set_edge_group_policy(flow.flow_id, flow["d"], AnyOf())

    await ff_engine.promote_blocked_to_eligible(flow["d"])

    assert await flow.states() == "d:w"


async def test_one_whose_promotion_was_lost_is_promoted(db: Connection, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>d")
    await flow.complete("a")
    await flow.carry_all()
    await db.execute(BLOCK_AGAIN, flow["d"].uuid)

    await ff_engine.promote_blocked_to_eligible(flow["d"])

    assert await flow.states() == "a:ok d:w"


async def test_a_parent_whose_wake_was_lost_goes_on_with_its_attempt(
    db: Connection, ff_engine: Engine
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("a")
    await family.put_down()
    await family.fail("a")
    await family.settle()
    await db.execute(BLOCK_AGAIN, family.parent.uuid)

    await ff_engine.promote_blocked_to_eligible(family.parent)

    row = await family.row("p")
    assert (row["public_state"], row["attempt_state"]) == ("waiting", "attempt_interrupted")


async def test_a_member_of_a_flow_that_drains_on_is_let_go(ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "d", hold=True)
    await ff_engine.cancel_flow(flow.flow_id, policy=CancellationPolicy.CANCEL_FLOW_ONLY)

    await ff_engine.promote_blocked_to_eligible(flow["d"])

    assert await flow.states() == "d:w"


# Who is not.


async def refused(
    engine: Engine, db: Connection, execution_id: ExecutionId, error: type[Exception]
) -> Exception:
    """The refusal of a promotion that changes nothing."""
    before = await given.everything(db)
    with pytest.raises(error) as caught:
        await engine.promote_blocked_to_eligible(execution_id)
    assert await given.everything(db) == before
    return caught.value


async def test_one_that_is_not_there_is_refused(db: Connection, ff_engine: Engine) -> None:
    await refused(ff_engine, db, given.new().execution_id, NotFound)


async def test_one_that_runs_is_refused(db: Connection, ff_engine: Engine) -> None:
    error = await refused(ff_engine, db, await execution(db, "active"), ExecutionNotRunnable)

    assert "is active, not runnable" in str(error)


@pytest.mark.parametrize("state", TERMINAL)
async def test_one_that_has_ended_is_refused(db: Connection, ff_engine: Engine, state: str) -> None:
    error = await refused(ff_engine, db, await execution(db, state), ExecutionTerminal)

    assert f"has ended: {state}" in str(error)


@pytest.mark.parametrize("state", RUNNABLE)
async def test_one_that_waits_for_something_else_is_refused(
    db: Connection, ff_engine: Engine, state: str
) -> None:
    await refused(ff_engine, db, await execution(db, state), NotBlockedByDeps)


@pytest.mark.parametrize("done", ["nothing", "one of two", "all, and nobody was told"])
async def test_one_whose_upstreams_are_not_all_heard_of_is_refused(
    db: Connection, ff_engine: Engine, done: str
) -> None:
    flow = await submitted(ff_engine, "a>d b>d")
    if done != "nothing":
        await flow.complete("a")
        await flow.carry_all()
    if done.startswith("all"):
        await flow.complete("b")

    await refused(ff_engine, db, flow["d"], DepsNotSatisfied)


async def test_one_that_counts_on_further_edges_is_refused(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await empty(ff_engine, "a", "d")
    await ff_engine.set_edge_group_policy(flow.flow_id, flow["d"], AnyOf(), expected_n=2)
    await flow.link("a>d")
    await flow.complete("a")
    await flow.carry_all()

    await refused(ff_engine, db, flow["d"], DepsNotSatisfied)


async def test_a_parent_whose_children_run_is_refused(db: Connection, ff_engine: Engine) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("ab")
    await family.put_down()
    await family.complete("a")
    await family.settle()

    await refused(ff_engine, db, family.parent, DepsNotSatisfied)


async def test_one_that_its_cancelled_flow_has_parked_is_refused(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await empty(ff_engine, "d", hold=True)
    await ff_engine.cancel_flow_header(flow.flow_id)

    await refused(ff_engine, db, flow["d"], NotBlockedByDeps)


async def test_one_that_its_cancelled_flow_has_only_listed_is_refused_too(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await empty(ff_engine, "d", hold=True)
    await ff_engine.cancel_flow_header(flow.flow_id)
    await db.execute(BLOCK_AGAIN, flow["d"].uuid)

    await refused(ff_engine, db, flow["d"], FlowAlreadyTerminal)


# Beside others.


async def promoted(conn: Connection, execution_id: ExecutionId) -> MemberPromoted:
    async with conn.transaction():
        return await promote_blocked_to_eligible(conn, execution_id)


async def test_one_that_the_last_end_promotes_meanwhile_is_promoted_once(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await submitted(ff_engine, "a>d")
    await flow.complete("a")
    carrier, operator = await another(), await another()
    async with carrier.transaction():
        await dispatch_completions(carrier)
        promoting = await given.blocked(db, operator, promoted(operator, flow["d"]))

    with pytest.raises(NotBlockedByDeps):
        await promoting
    assert await flow.states() == "a:ok d:w"


async def test_a_last_end_that_comes_while_it_is_judged_promotes(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await submitted(ff_engine, "a>d")
    await flow.complete("a")
    operator = await another()
    async with operator.transaction():
        with pytest.raises(DepsNotSatisfied):
            await promote_blocked_to_eligible(operator, flow["d"])
        carrying = await waiting(db, flow.carry())
    assert await carrying == 1

    assert await flow.states() == "a:ok d:w"


async def test_one_that_is_parked_meanwhile_is_not_promoted(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await empty(ff_engine, "d", hold=True)
    canceller, operator = await another(), await another()
    async with canceller.transaction():
        await cancel_flow_header(canceller, flow.flow_id)
        promoting = await given.blocked(db, operator, promoted(operator, flow["d"]))

    with pytest.raises(NotBlockedByDeps):
        await promoting
    assert (await flow.row("d"))["blocking_reason"] == "paused_by_flow_cancel"


async def test_one_that_was_promoted_before_its_flow_is_cancelled_ends_with_it(
    ff_engine: Engine, another: Another
) -> None:
    flow = await empty(ff_engine, "d", hold=True)
    operator = await another()
    async with operator.transaction():
        await promote_blocked_to_eligible(operator, flow["d"])
        cancelling = await closed(flow, ff_engine.cancel_flow(flow.flow_id))
    await cancelling

    assert await flow.states() == "d:c"


async def held_with_a_staged_edge(engine: Engine) -> Graph:
    flow = await empty(engine, "a", "d", hold=True)
    await engine.promote_blocked_to_eligible(flow["a"])
    await flow.stage("a>d")
    return flow


async def test_an_edge_that_is_applied_meanwhile_holds_it(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await held_with_a_staged_edge(ff_engine)
    builder, operator = await another(), await another()
    async with builder.transaction():
        await apply_dependency_to_child(builder, flow.flow_id, flow.edge_ids["a>d"])
        promoting = await given.blocked(db, operator, promoted(operator, flow["d"]))

    with pytest.raises(DepsNotSatisfied):
        await promoting
    assert await flow.states() == "a:w d:wc"


async def test_an_edge_that_waits_for_the_promotion_holds_it_again(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await held_with_a_staged_edge(ff_engine)
    operator = await another()
    async with operator.transaction():
        await promote_blocked_to_eligible(operator, flow["d"])
        applying = await waiting(db, flow.apply("a>d"))
    await applying

    assert await flow.states() == "a:w d:wc"
