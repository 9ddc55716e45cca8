"""A flow that was never given a member is forgotten a day later."""

from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection, positional
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.add_execution_to_flow import MemberAdded, add_execution_to_flow
from flowfabric.engine.flows.delete_empty_flows import DELETE_EMPTY_FLOWS, delete_empty_flows
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another
from tests.engine.flows.graphs import empty, minted, submitted

DAY = 24 * 3600


async def test_of_one_that_nobody_touched_for_a_day_nothing_is_left(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    before = await given.everything(db)
    open_, cancelled = uuid4(), uuid4()
    for flow_id in (open_, cancelled):
        await ff_engine.create_flow(flow_id, flow_kind="pipeline")
    await clock.advance(DAY - 1)
    assert await delete_empty_flows(db, 10) == 0
    await ff_engine.cancel_flow(cancelled)
    await clock.advance(1)

    assert await delete_empty_flows(db, 10) == 1
    await clock.advance(DAY)
    assert await delete_empty_flows(db, 10) == 1

    kept = [line for line in await given.everything(db) if line[0] != "operator_event"]
    assert kept == before
    assert await ff_engine.describe_flow(open_) is None


async def test_one_that_has_or_had_members_is_left_to_retention(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    await submitted(ff_engine, "a>b")
    await empty(ff_engine, "a")
    await clock.advance(10 * DAY)

    assert await delete_empty_flows(db, 10) == 0


async def test_at_most_so_many_at_once(db: Connection, ff_engine: Engine, clock: Clock) -> None:
    for _ in range(3):
        await empty(ff_engine)
    await clock.advance(DAY)

    assert [await delete_empty_flows(db, 2) for _ in range(3)] == [2, 1, 0]


async def test_one_that_is_given_a_member_meanwhile_is_passed_over(
    db: Connection, ff_engine: Engine, clock: Clock, another: Another
) -> None:
    flow = await empty(ff_engine)
    await clock.advance(DAY)
    new = await given.created(db, execution_id=minted(flow.flow_id))
    builder = await another()
    async with builder.transaction():
        added = await add_execution_to_flow(builder, flow.flow_id, new)
        assert await delete_empty_flows(db, 10) == 0

    assert isinstance(added, MemberAdded)
    assert await delete_empty_flows(db, 10) == 0
    assert await flow.count("flow_core") == 1


@pytest.mark.session("reads the plan of a session with our settings")
async def test_it_looks_only_at_those_that_are_empty(db: Connection) -> None:
    text, names = positional(DELETE_EMPTY_FLOWS)
    values = {"limit": 10, "kept_ms": 1}
    plan = await db.fetch("EXPLAIN " + text, *[values[name] for name in names])
    lines = "\n".join(row[0] for row in plan)

    assert "flow_core_empty" in lines
    assert "Seq Scan" not in lines
