"""A replay of a member beside what moves the member, its joins or its flow at the same time."""

import asyncio

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.add_execution_to_flow import add_execution_to_flow
from flowfabric.engine.flows.cancel_flow_header import cancel_flow_header
from flowfabric.engine.joins.dispatch_completions import dispatch_completions
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.operators.replay_execution import Replayed, replay_executions
from flowfabric.errors import ExecutionNotTerminal, FlowAlreadyTerminal
from flowfabric.ids import ExecutionId
from tests import given
from tests.engine.controls import Another, actions, execution, waiting
from tests.engine.flows.graphs import empty, minted, submitted


async def test_one_that_is_skipped_meanwhile_waits_for_its_upstreams(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    """It had not ended when the replay first looked at it, and was skipped when it was locked."""
    flow = await submitted(ff_engine, "a>d b>d")
    await flow.fail("a")
    carrier = await another()
    async with carrier.transaction():
        await dispatch_completions(carrier)
        replaying = await waiting(db, ff_engine.replay_execution(flow["d"]))

    assert (await replaying).public_state == "waiting_children"
    assert await flow.state("d") == "waiting_children"
    assert await flow.group("d") == "0/0/0/2 pending"
    [action] = await actions(db, flow["d"])
    assert action.details["branch"] == "skipped_flow_member"
    assert action.details["groups_reset"] == 1
    await flow.carry_all()


async def test_one_that_waits_again_and_is_skipped_again_meanwhile_is_no_conflict(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    """Also in a transaction of the caller's own, which nobody runs again."""
    flow = await submitted(ff_engine, "a>d")
    await flow.fail("a")
    await flow.carry_all()
    await flow.replay("d")
    operator, carrier = await another(), await another()
    await flow.replay("a")
    await flow.fail("a")
    async with carrier.transaction():
        await dispatch_completions(carrier)
        replaying = await given.blocked(db, operator, in_transaction(operator, [flow["d"]]))

    [replayed] = await replaying
    assert isinstance(replayed, Replayed)
    assert replayed.public_state == "waiting_children"
    assert await flow.group("d") == "0/0/0/1 pending"
    await flow.carry_all()


async def in_transaction(conn: Connection, executions: list[ExecutionId]) -> list[object]:
    async with conn.transaction():
        return list(await replay_executions(conn, executions))


async def test_one_that_joins_a_flow_meanwhile_is_replayed_as_its_member(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await empty(ff_engine, "a")
    await flow.complete("a")
    await flow.carry_all()
    new = await execution(db, "failed", execution_id=minted(flow.flow_id))
    await ff_engine.project_flow_summary(flow.flow_id)
    builder = await another()
    async with builder.transaction():
        await add_execution_to_flow(builder, flow.flow_id, new)
        replaying = await waiting(db, ff_engine.replay_execution(new))

    assert (await replaying).public_state == "waiting"
    assert (await given.row(db, new))["flow_id"] == flow.flow_id
    assert len(await actions(db, new)) == 1


async def test_one_whose_new_flow_is_cancelled_meanwhile_is_refused(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await empty(ff_engine)
    new = await execution(db, "failed", execution_id=minted(flow.flow_id))
    builder = await another()
    async with builder.transaction():
        await add_execution_to_flow(builder, flow.flow_id, new)
        await cancel_flow_header(builder, flow.flow_id)
        replaying = await waiting(db, ff_engine.replay_execution(new))

    with pytest.raises(FlowAlreadyTerminal):
        await replaying
    assert await given.public_state(db, new) == "failed"


async def test_members_of_a_flow_that_is_cancelled_meanwhile_are_refused(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow, other = await submitted(ff_engine, "a>d"), await submitted(ff_engine, "a>d")
    for each in (flow, other):
        await each.fail("a")
        await each.carry_all()
    operator = await another()
    async with operator.transaction():
        await cancel_flow_header(operator, flow.flow_id)
        replaying = await waiting(
            db, ff_engine.replay_executions([flow["a"], other["d"], flow["d"]])
        )

    first, second, third = await replaying
    assert isinstance(first, FlowAlreadyTerminal)
    assert isinstance(third, FlowAlreadyTerminal)
    assert isinstance(second, Replayed)
    assert await flow.states() == "a:f d:k"
    assert await other.states() == "a:f d:wc"


async def test_a_skipped_member_that_another_replays_meanwhile_is_replayed_once(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await submitted(ff_engine, "a>d")
    await flow.fail("a")
    await flow.carry_all()
    operator = await another()
    async with operator.transaction():
        await replay_executions(operator, [flow["d"]])
        replaying = await waiting(db, ff_engine.replay_execution(flow["d"]))

    with pytest.raises(ExecutionNotTerminal):
        await replaying
    assert (await flow.row("d"))["replay_count"] == 1


async def test_replays_of_the_same_members_in_any_order_do_not_deadlock(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flows = [await submitted(ff_engine, "a>d b>d") for _ in range(4)]
    for flow in flows:
        await flow.fail("a", "b")
        await flow.carry_all()
    asked = [flow[name] for flow in flows for name in "dab"]
    conns = [await another() for _ in range(4)]
    orders = [asked, asked[::-1], asked[6:] + asked[:6], sorted(asked)]

    answers = await asyncio.gather(*map(in_transaction, conns, orders))

    replayed = [answer for given_to in answers for answer in given_to]
    assert sum(isinstance(answer, Replayed) for answer in replayed) == len(asked)
    assert sum(isinstance(answer, ExecutionNotTerminal) for answer in replayed) == 3 * len(asked)


async def test_a_replay_and_a_batch_of_completions_lock_in_one_order(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    """The upstreams of a skipped member run; their holder ends them while the member is reset."""
    flow = await submitted(ff_engine, "a>d b>d c>d")
    await flow.fail("a")
    await flow.carry_all()
    leases = await flow.claim("c", "b")
    operator, holder = await another(), await another()
    async with operator.transaction():
        await replay_executions(operator, [flow["d"], flow["a"]])
        ending = await given.blocked(
            db, holder, complete(holder, [Completion(lease, b"1") for lease in leases])
        )
    await ending
    await flow.carry_all()

    assert await flow.states() == "a:w b:ok c:ok d:wc"
    assert await flow.group("d") == "2/0/0/1 pending"
