"""Where flows stand, written down."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.project_flow_summary import project_flow_summary
from flowfabric.engine.flows.project_unsettled import EVERY_MS, project_unsettled
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.reconcile.sweeps import SWEEPS
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another
from tests.engine.flows.graphs import Graph, done_or_waiting, empty, submitted


async def summary(db: Connection, flow_id: UUID) -> dict[str, Any]:
    [row] = await db.fetch("SELECT * FROM ff.flow_summary WHERE flow_id = $1", flow_id)
    return dict(row)


async def word(db: Connection, flow: Graph) -> str:
    return (await summary(db, flow.flow_id))["public_flow_state"]


async def test_the_summary_is_as_the_members_are(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await submitted(ff_engine, "a>b c d e", fields={"e": {"delay": 60}})
    await flow.complete("a")
    await flow.fail("c")
    await flow.claim("d")
    await clock.advance(5)

    assert await ff_engine.project_flow_summary(flow.flow_id)

    counts = {"completed": 1, "failed": 1, "active": 1, "delayed": 1, "waiting_children": 1}
    assert await summary(db, flow.flow_id) == {
        "partition_key": flow["a"].partition_key,
        "flow_id": flow.flow_id,
        "total_members": 5,
        "sampled_members": 5,
        "public_flow_state": "running",
        "last_summary_update_at_ms": await clock.now_ms(),
        **{
            f"members_{state}": counts.get(state, 0)
            for state in (
                "completed",
                "failed",
                "cancelled",
                "expired",
                "skipped",
                "active",
                "suspended",
                "waiting",
                "delayed",
                "rate_limited",
                "waiting_children",
            )
        },
    }
    await flow.carry_all()


async def test_again_is_the_same(db: Connection, ff_engine: Engine, clock: Clock) -> None:
    flow = await submitted(ff_engine, "a>b")
    await ff_engine.project_flow_summary(flow.flow_id)
    before = await given.everything(db)

    assert await ff_engine.project_flow_summary(flow.flow_id)

    assert await given.everything(db) == before


async def test_a_flow_without_members_is_not_written(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await empty(ff_engine)
    before = await given.everything(db)
    await clock.advance(5)

    assert not await ff_engine.project_flow_summary(flow.flow_id)
    assert not await ff_engine.project_flow_summary(uuid4())

    assert await given.everything(db) == before


async def test_a_summary_that_was_lost_is_written_again(db: Connection, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b")
    await db.execute("DELETE FROM ff.flow_summary")

    assert await ff_engine.project_flow_summary(flow.flow_id)

    assert await word(db, flow) == "blocked"


@pytest.mark.parametrize("policy", ["cancel_flow_only", "cancel_pending", "cancel_all"])
async def test_a_cancelled_flow_is_settled_once_all_have_ended(
    db: Connection, ff_engine: Engine, policy: str
) -> None:
    flow = await submitted(ff_engine, "a b")
    await flow.claim("a")
    await ff_engine.cancel_flow(flow.flow_id, policy=policy)
    await ff_engine.project_flow_summary(flow.flow_id)
    assert await word(db, flow) == ("cancelled" if policy == "cancel_all" else "running")
    if policy != "cancel_all":
        await flow.complete("a")
    if policy == "cancel_flow_only":
        await flow.complete("b")

    await ff_engine.project_flow_summary(flow.flow_id)

    assert await word(db, flow) == "cancelled"
    await flow.carry_all()


# The projector.


async def test_it_looks_at_unsettled_flows_now_and_then(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await submitted(ff_engine, "a")
    await flow.complete("a")
    await clock.advance(EVERY_MS / 1000 - 0.001)
    assert await project_unsettled(db, limit=10) == 0
    await clock.advance(0.001)

    assert await project_unsettled(db, limit=10) == 1

    assert await word(db, flow) == "completed"
    await clock.advance(3600)
    assert await project_unsettled(db, limit=10) == 0


async def test_a_flow_that_goes_on_is_looked_at_again(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    added, replayed = await submitted(ff_engine, "a"), await submitted(ff_engine, "a")
    for flow in (added, replayed):
        await flow.complete("a")
    await clock.advance(10)
    assert await project_unsettled(db, limit=10) == 2

    await added.add("b")
    await replayed.replay("a")
    assert [await word(db, flow) for flow in (added, replayed)] == ["open", "open"]
    await clock.advance(10)

    assert await project_unsettled(db, limit=10) == 2


async def test_at_most_so_many_the_longest_untouched_first(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flows = []
    for _ in range(3):
        flows.append(await submitted(ff_engine, "a>b"))
        await clock.advance(1)
    await clock.advance(10)

    assert await project_unsettled(db, limit=2) == 2

    assert [await word(db, flow) for flow in flows] == ["blocked", "blocked", "open"]
    assert [await project_unsettled(db, limit=2) for _ in range(2)] == [1, 0]


async def test_flows_without_members_do_not_stand_in_the_way(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    for _ in range(3):
        await empty(ff_engine)
    await clock.advance(1)
    flow = await submitted(ff_engine, "a")
    await flow.complete("a")

    for _ in range(3):
        await clock.advance(15)
        await project_unsettled(db, limit=2)

    assert await word(db, flow) == "completed"


async def test_a_summary_that_another_writes_is_passed_over(
    db: Connection, ff_engine: Engine, another: Another, clock: Clock
) -> None:
    for _ in range(3):
        await submitted(ff_engine, "a")
    await clock.advance(10)
    first = await another()
    async with first.transaction():
        assert await project_unsettled(first, limit=2) == 2
        assert await project_unsettled(db, limit=10) == 1


async def test_a_member_that_is_replayed_meanwhile_is_not_forgotten(
    db: Connection, ff_engine: Engine, another: Another, clock: Clock
) -> None:
    """A projection that looked before the replay and writes after it must not settle the flow."""
    flow = await submitted(ff_engine, "a")
    await flow.complete("a")
    operator, projector = await another(), await another()
    async with operator.transaction():
        await replay_execution(operator, flow["a"])
        projecting = await given.blocked(
            db, projector, project_flow_summary(projector, flow.flow_id)
        )
    await projecting

    for _ in range(2):
        await clock.advance(15)
        await project_unsettled(db, limit=10)
    assert await word(db, flow) == "open"
    await flow.carry_all()


async def test_a_member_that_is_added_meanwhile_is_not_forgotten(
    db: Connection, ff_engine: Engine, another: Another, clock: Clock
) -> None:
    """It is added after the projection has counted, and before that is committed."""
    flow = await submitted(ff_engine, "a")
    await flow.complete("a")
    projector = await another()
    async with projector.transaction():
        assert await project_flow_summary(projector, flow.flow_id)
        adding = await done_or_waiting(db, flow.add("b"))
    await adding

    for _ in range(2):
        await clock.advance(15)
        await project_unsettled(db, limit=10)
    assert await word(db, flow) == "open"
    await flow.carry_all()


async def test_the_sweep_writes_it(
    db: Connection, ff_engine: Engine, clock: Clock, ff_sweep: Callable[[], Awaitable[int]]
) -> None:
    flow = await submitted(ff_engine, "a")
    await flow.fail("a")
    await clock.advance(10)

    await ff_sweep()

    assert await word(db, flow) == "failed"
    assert [sweep.every for sweep in SWEEPS if sweep.step is project_unsettled] == [15.0]
