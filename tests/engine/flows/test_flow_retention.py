"""Members stay while their flow is not settled; the flow goes with its last member."""

from uuid import UUID

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.project_unsettled import project_unsettled
from flowfabric.engine.lanes.set_lane_retention import set_lane_retention
from flowfabric.engine.retention.count_trimmable import count_trimmable
from flowfabric.engine.retention.delete_finished import delete_finished
from flowfabric.engine.retention.trim import Trim
from flowfabric.engine.retention.trim_retention import trim_retention
from flowfabric.joins import AnyOf
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import execution
from tests.engine.flows.graphs import Graph, submitted

ALL = Trim(lane_id="default", retention=0)
OF_A_FLOW = (
    "flow_core",
    "flow_summary",
    "edge",
    "edge_group",
    "pending_cancel_groups",
    "cancel_backlog",
    "cancel_backlog_member",
)


async def rows(db: Connection, flow_id: UUID) -> dict[str, int]:
    """How many rows each table of flows has of one flow; those that have none are left out."""
    counts = {
        table: await db.fetchval(f"SELECT count(*) FROM ff.{table} WHERE flow_id = $1", flow_id)
        for table in (*OF_A_FLOW, "exec_core", "completion_event")
    }
    return {table: count for table, count in counts.items() if count}


async def settled(db: Connection, engine: Engine, arrows: str = "a>b", **fields: object) -> Graph:
    """A flow whose members have all succeeded, and whose summary says so."""
    flow = await submitted(engine, arrows, **fields)  # type: ignore[arg-type]
    while True:
        waiting = [pair.split(":")[0] for pair in (await flow.states()).split() if ":w" in pair]
        if not waiting:
            break
        for name in waiting:
            if await flow.state(name) == "waiting":
                await flow.complete(name)
        await engine.dispatch()
    await engine.project_flow_summary(flow.flow_id)
    return flow


async def test_of_a_flow_that_is_done_nothing_is_left(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await settled(db, ff_engine, "a>b a>c b>d c>d")
    before = await rows(db, flow.flow_id)
    assert before["flow_core"] == before["flow_summary"] == 1
    assert before["edge"] == before["exec_core"] == 4

    assert await trim_retention(db, ALL) == 4

    assert await rows(db, flow.flow_id) == {}


@pytest.mark.parametrize("standing", ["open", "running", "blocked"])
async def test_members_of_a_flow_that_goes_on_stay(
    db: Connection, ff_engine: Engine, clock: Clock, standing: str
) -> None:
    flow = await submitted(ff_engine, "a b>c" if standing == "blocked" else "a b")
    await flow.complete("a")
    if standing == "running":
        await flow.claim("b")
    await flow.carry_all()
    await ff_engine.project_flow_summary(flow.flow_id)
    await clock.advance(365 * 24 * 3600)
    before = await given.everything(db)

    assert await count_trimmable(db, ALL) == 0
    assert await trim_retention(db, ALL) == 0
    assert await delete_finished(db, limit=10) == 0

    assert await given.everything(db) == before


@pytest.mark.parametrize("end", ["failed", "cancelled"])
async def test_however_a_flow_ended_it_goes(
    db: Connection, ff_engine: Engine, clock: Clock, end: str
) -> None:
    flow = await submitted(ff_engine, "a>b")
    if end == "failed":
        await flow.fail("a")
    else:
        await ff_engine.cancel_flow(flow.flow_id)
    await ff_engine.dispatch()
    await ff_engine.project_flow_summary(flow.flow_id)
    await clock.advance(24 * 3600)

    assert await delete_finished(db, limit=10) == 2

    assert await rows(db, flow.flow_id) == {}


async def test_a_flow_that_nobody_has_projected_stays(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await submitted(ff_engine, "a")
    await flow.complete("a")
    await flow.carry_all()
    assert await trim_retention(db, ALL) == 0
    await clock.advance(10)
    await project_unsettled(db, limit=10)

    assert await trim_retention(db, ALL) == 1


async def test_a_flow_that_was_reopened_stays(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    replayed, added = await settled(db, ff_engine), await settled(db, ff_engine)
    await replayed.replay("b")
    await added.add("c")

    assert await trim_retention(db, ALL) == 0

    assert await replayed.states() == "a:ok b:w"
    assert await added.states() == "a:ok b:ok c:w"


async def test_the_flow_stays_until_its_last_member_goes(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await settled(db, ff_engine, "a b c")

    assert await trim_retention(db, ALL, batch_size=2) == 2
    left = await rows(db, flow.flow_id)
    assert left == {"flow_core": 1, "flow_summary": 1, "exec_core": 1, "completion_event": 1}

    assert await trim_retention(db, ALL, batch_size=2) == 1
    assert await rows(db, flow.flow_id) == {}


async def test_the_flow_stays_while_a_lane_keeps_a_member(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await settled(db, ff_engine, "a>b", fields={"b": {"lane_id": "slow"}})
    await set_lane_retention(db, "slow", 7 * 24 * 3600)
    await clock.advance(24 * 3600)

    assert await delete_finished(db, limit=10) == 1

    left = await rows(db, flow.flow_id)
    assert (left["flow_core"], left["flow_summary"], left["exec_core"]) == (1, 1, 1)
    found = await ff_engine.describe_flow(flow.flow_id)
    assert found is not None
    assert (found.node_count, found.derived_state) == (2, "completed")
    await clock.advance(6 * 24 * 3600)
    assert await delete_finished(db, limit=10) == 1
    assert await rows(db, flow.flow_id) == {}


async def test_what_others_forget_in_the_same_batch_does_not_matter(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    """A batch with executions of several partitions; one flow still has a member afterwards."""
    flow = await settled(db, ff_engine, "a>b", fields={"b": {"lane_id": "slow"}})
    for _ in range(3):
        await execution(db, "cancelled")

    assert await trim_retention(db, ALL) == 4

    left = await rows(db, flow.flow_id)
    assert (left.get("flow_core"), left.get("flow_summary"), left["exec_core"]) == (1, 1, 1)
    assert await trim_retention(db, Trim(lane_id="slow", retention=0)) == 1
    assert await rows(db, flow.flow_id) == {}


async def test_flows_of_several_partitions_go_in_one_batch(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flows = [await settled(db, ff_engine) for _ in range(4)]
    other = await submitted(ff_engine, "a>b")

    assert await trim_retention(db, ALL) == 8

    for flow in flows:
        assert await rows(db, flow.flow_id) == {}
    assert (await rows(db, other.flow_id))["flow_core"] == 1


async def test_a_race_that_was_won_goes_with_its_losers(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await settled(db, ff_engine, "a>d b>d c>d", policies={"d": AnyOf()})

    assert await trim_retention(db, ALL) == 4

    assert await rows(db, flow.flow_id) == {}


async def test_an_end_that_was_not_carried_keeps_nobody(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    """All members of a cancelled flow have ended; their events are forgotten with them."""
    flow = await submitted(ff_engine, "a>b")
    await ff_engine.cancel_flow(flow.flow_id)
    await ff_engine.project_flow_summary(flow.flow_id)

    assert await trim_retention(db, ALL) == 2

    assert await rows(db, flow.flow_id) == {}
    assert await ff_engine.dispatch() == 0
