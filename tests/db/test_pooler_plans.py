"""Behind a pooler connections lack our planner settings; statements follow indexes all the same."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from uuid import uuid4

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.new_flow import NewEdge, NewFlow
from flowfabric.engine.flows.submit_flow import submit_flow
from flowfabric.engine.joins.cancel_siblings import cancel_siblings
from flowfabric.engine.joins.spawn_children import spawn_children
from flowfabric.engine.lifecycle.claim import Claimant, claim
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.engine.lifecycle.wait_children import ChildWait, WaitingChildren, wait_children
from flowfabric.ids import child_id, children_group_id
from flowfabric.joins import AnyOf
from flowfabric.testing import TestServer
from tests import given
from tests.engine.flows.graphs import fan_in, member, submitted
from tests.explained import whole_reads
from tests.proofs.crowd import analyzed, crowded

pytestmark = [
    pytest.mark.session("measures one session and changes its settings"),
    pytest.mark.usefixtures("new_database"),
]

BATCH = 100
SMALL = {"lane_registry", "partition_config", "route", "waiter", "worker_registry"}
"""Tables with a row per lane, per kind or per process."""
CLAIMANT = Claimant(worker_id="w", worker_instance_id="w-1", lanes=("default",))

MANY_WAITERS = """
INSERT INTO ff.waiter SELECT 'lane:' || n, 'w', 9223372036854775807
  FROM generate_series(1, 20000) AS n
"""


@pytest.fixture
async def unseen_dsn(ff_server: TestServer) -> AsyncGenerator[str]:
    """A database of which no earlier test has left statistics."""
    dsn = await ff_server.create()
    try:
        yield dsn
    finally:
        await ff_server.drop(dsn)


@pytest.fixture
async def behind(unseen_dsn: str) -> AsyncGenerator[Connection]:
    """A connection as a pooler gives it: without our settings."""
    conn = await connect(DatabaseConfig(dsn=unseen_dsn, pooler=True), role="tests")
    try:
        assert await conn.fetchval("SHOW enable_seqscan") == "on"
        yield conn
    finally:
        await conn.close()


async def read_whole(conn: Connection, before: dict[str, int]) -> set[str]:
    after = await whole_reads(conn)
    return {table for table, times in after.items() if times > before.get(table, 0)}


@pytest.mark.parametrize("counted", [False, True], ids=["without statistics", "with statistics"])
async def test_a_claim_a_renewal_and_a_completion_read_no_large_table_from_end_to_end(
    behind: Connection, counted: bool
) -> None:
    await crowded(behind, ended=10_000, live=5_000)  # of a few hundred leases, all are read
    if counted:
        await analyzed(behind)
    async with behind.transaction():
        before = await whole_reads(behind)

        leases = [each.lease for each in await claim(behind, CLAIMANT, ttl=30, limit=BATCH)]
        renewed = await renew(behind, leases, ttl=30)
        completed = await complete(behind, [Completion(lease) for lease in leases])

        assert await read_whole(behind, before) - SMALL == set()
    assert (len(leases), renewed) == (BATCH, [None] * BATCH)
    assert all(isinstance(each, Completed) for each in completed)


async def test_what_a_function_planned_while_tables_were_small_holds_when_they_have_grown(
    behind: Connection,
) -> None:
    submit = "SELECT ff.submit('mail', idempotency_key => $1, tags => '{\"a.b\": \"c\"}')"
    await behind.fetchval(submit, "first")
    await behind.execute("VACUUM ANALYZE")  # the planner knows that tables are small
    for number in range(10):  # more often than it takes until Postgres keeps a plan for any values
        await behind.fetchval(submit, f"small {number}")
    await crowded(behind, ended=10_000, live=500)
    await behind.execute(MANY_WAITERS)
    async with behind.transaction():
        before = await whole_reads(behind)

        await behind.fetchval(submit, "large")

        assert await read_whole(behind, before) == {"partition_config"}


# Flows and children, in a database with many of them.


@pytest.fixture
async def parent(behind: Connection) -> Lease:
    """A handler that runs in a crowded database."""
    await crowded(behind, ended=10_000, live=500)
    [task] = await claim(behind, CLAIMANT, ttl=600)
    return task.lease


@pytest.mark.parametrize("counted", [False, True], ids=["without statistics", "with statistics"])
async def test_a_flow_children_and_a_wait_for_them_read_no_large_table_from_end_to_end(
    behind: Connection, parent: Lease, counted: bool
) -> None:
    if counted:
        await analyzed(behind)
    flow_id, group = uuid4(), children_group_id(parent.execution_id, 0)
    members = [member(flow_id) for _ in range(20)]
    edges = [
        NewEdge(upstream=one.execution_id, downstream=members[-1].execution_id)
        for one in members[:-1]
    ]
    children = [
        given.new(execution_id=child_id(parent.execution_id, 0, number, kind="job"))
        for number in range(20)
    ]
    async with behind.transaction():
        before = await whole_reads(behind)

        await submit_flow(
            behind, NewFlow(flow_id=flow_id, flow_kind="x", members=members, edges=edges)
        )
        of_flow = await read_whole(behind, before) - SMALL
        await spawn_children(behind, parent, children, group=group)
        of_children = await read_whole(behind, before) - SMALL
        [waiting] = await wait_children(behind, [ChildWait(lease=parent, groups=(group,))])

        of_wait = await read_whole(behind, before) - SMALL
    assert (of_flow, of_children, of_wait) == (set(), set(), set())
    assert isinstance(waiting, WaitingChildren)


async def test_whoever_cancels_siblings_of_one_join_locks_no_other(
    behind: Connection, unseen_dsn: str
) -> None:
    engine = await Engine.connect(DatabaseConfig(dsn=unseen_dsn, pooler=True))
    try:
        for _ in range(3):
            flow = await submitted(engine, fan_in(3), policies={"d": AnyOf()})
            await flow.complete("u1")
            await flow.carry_all()
    finally:
        await engine.close()
    await behind.execute("SET enable_indexscan = off")  # the planner sorts, as it may
    other = await connect(DatabaseConfig(dsn=unseen_dsn, pooler=True), role="tests")
    try:
        async with behind.transaction(), other.transaction():
            assert await cancel_siblings(behind, limit=1) == 1
            assert await cancel_siblings(other, limit=50) == 2
    finally:
        await other.close()
