"""What the members of a wide flow cost a dispatch and a replay: as much as those of a small one."""

from collections import defaultdict
from collections.abc import Awaitable, Callable

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.describe_flow import describe_flow
from flowfabric.engine.flows.list_edges import list_edges
from flowfabric.engine.flows.list_flow_members import list_flow_members
from flowfabric.engine.flows.list_flows import list_flows
from flowfabric.engine.joins.dispatch_completions import dispatch_batch
from flowfabric.engine.joins.lock_joins import lock_joins
from flowfabric.engine.joins.reset_join import reopen_edges
from flowfabric.engine.joins.skipped_below import skipped_below
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.operators.plan_replay import plan_replay
from flowfabric.ids import ExecutionId, children_group_id
from tests import given
from tests.engine.flows.graphs import Graph, end_leases, fan_in, home, submitted
from tests.engine.joins.parents import parent
from tests.explained import Explained

MOST = 60
"""Buffers, and rows looked at, that one member may cost a statement."""
ENDED = 60
"""Members that fail together."""

Shape = Callable[[Connection, Engine, int], Awaitable[Graph]]


async def out(_: Connection, engine: Engine, size: int) -> Graph:
    """One member before all others, which has succeeded."""
    flow = await submitted(engine, " ".join(f"a>m{number}" for number in range(size)))
    await flow.complete("a")
    await flow.carry_all()
    return flow


async def out_and_in(_: Connection, engine: Engine, size: int) -> Graph:
    """One member before all others, which has succeeded, and one after all others."""
    flow = await submitted(engine, " ".join(f"a>m{number} m{number}>z" for number in range(size)))
    await flow.complete("a")
    await flow.carry_all()
    return flow


async def into(_: Connection, engine: Engine, size: int) -> Graph:
    """One member after all others."""
    return await submitted(engine, fan_in(size))


async def children(db: Connection, engine: Engine, size: int) -> Graph:
    """A parent that waits for each of its children alone."""
    family = await parent(engine, db)
    new = family.born("".join(chr(0x4E00 + number) for number in range(size)))
    await engine.spawn_apart(
        family.lease,
        {children_group_id(family.parent, 0, index): each for index, each in enumerate(new)},
    )
    return family


async def failed_members(db: Connection) -> list[ExecutionId]:
    """Some members that can be claimed have failed."""
    tasks = await claim(db, given.WORKER, ttl=600, limit=ENDED)
    await end_leases(db, {task.lease: "F" for task in tasks})
    return [task.lease.execution_id for task in tasks]


async def costs(db: Connection, flow: Graph, members: list[ExecutionId]) -> dict[str, float]:
    """The most that each statement costs by buffers or rows, per member that it is about."""

    async def for_ended(conn: Connection) -> None:
        await lock_joins(conn, members)
        await skipped_below(conn, members)
        await reopen_edges(conn, members)
        await dispatch_batch(conn)
        for member in members[:2]:
            await list_edges(conn, flow.flow_id, outgoing_from=member)
        await list_flows(conn)

    async def for_all(conn: Connection) -> None:
        await plan_replay(conn, home(flow.flow_id), flow.flow_id)
        await list_flow_members(conn, flow.flow_id, limit=1000)
        await describe_flow(conn, flow.flow_id)

    return await _explained(db, for_ended, ENDED) | await _explained(db, for_all, len(flow.ids))


async def _explained(
    db: Connection, calls: Callable[[Connection], Awaitable[object]], members: int
) -> dict[str, float]:
    most = defaultdict[str, float](float)
    for generic in (False, True):
        watched = Explained(db, generic=generic)
        undone = db.transaction()
        await undone.start()
        await calls(watched)  # type: ignore[arg-type]
        await undone.rollback()
        for each in watched.costs:
            most[each.statement] = max(most[each.statement], max(each.buffers, each.rows) / members)
    return most


@pytest.mark.parametrize("size", [150, 1500])
@pytest.mark.parametrize("shape", [out, out_and_in, into, children])
async def test_what_a_member_costs_does_not_depend_on_how_wide_its_flow_is(
    db: Connection, ff_engine: Engine, shape: Shape, size: int
) -> None:
    flow = await shape(db, ff_engine, size)
    members = await failed_members(db)
    await db.execute("ANALYZE")

    found = await costs(db, flow, members)

    assert {name: cost for name, cost in found.items() if cost > MOST} == {}


LOOKUPS = {
    "edge_pair": "SELECT FROM ff.edge WHERE (partition_key, upstream_eid) = ($1, $2)",
    "edge_group_edges": "SELECT FROM ff.edge WHERE (partition_key, group_id) = ($1, $2)",
    "edge_group_waiter": "SELECT FROM ff.edge_group WHERE (partition_key, waiter_eid) = ($1, $2)",
}


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("index", LOOKUPS)
async def test_a_plan_that_was_made_for_an_empty_table_follows_the_index_of_its_column(
    db: Connection, index: str, analyzed: bool
) -> None:
    await db.execute("TRUNCATE ff.edge, ff.edge_group")  # other tests left pages of deleted rows
    if analyzed:
        await db.execute("VACUUM ANALYZE ff.edge, ff.edge_group")
    await db.execute("SET plan_cache_mode = force_generic_plan")
    await db.execute(f"PREPARE lookup AS {LOOKUPS[index]}")

    plan = await db.fetchval("EXPLAIN EXECUTE lookup (1, gen_random_uuid())")

    assert f"using {index} " in plan
