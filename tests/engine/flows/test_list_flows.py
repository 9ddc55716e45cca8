"""Flows page by page, and the members of one."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.list_flows import FlowPage, FlowStatus, list_flows
from flowfabric.errors import ValidationError
from flowfabric.ids import PartitionKey
from flowfabric.joins import AnyOf
from flowfabric.testing import Clock
from tests.engine.flows.graphs import Graph, empty, flow_beside, home, submitted
from tests.explained import Explained


async def made(engine: Engine, clock: Clock, number: int, *, together: bool) -> list[UUID]:
    """So many empty flows, in one partition or anywhere, as they are listed: the newest first.

    Every second one is as old as the one before.
    """
    flows = [first := uuid4()]
    while len(flows) < number:
        flows.append(flow_beside(first) if together else uuid4())
    ages: dict[UUID, int] = {}
    for place, flow_id in enumerate(flows):
        ages[flow_id] = -(place // 2)
        await engine.create_flow(flow_id, flow_kind="k")
        await clock.advance(place % 2)
    newest_id_first = sorted(flows, key=lambda flow_id: flow_id.bytes, reverse=True)
    return sorted(newest_id_first, key=lambda flow_id: ages[flow_id])


async def walked(engine: Engine, partition: PartitionKey | None, limit: int) -> list[list[UUID]]:
    """Every page, until there is none."""
    pages: list[list[UUID]] = []
    cursor: str | None = None
    while True:
        page = await engine.list_flows(partition, cursor=cursor, limit=limit)
        pages.append([flow.flow_id for flow in page.flows])
        if page.next_cursor is None:
            return pages
        cursor = page.next_cursor


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("together", [True, False])
async def test_every_flow_is_listed_once_the_newest_first(
    ff_engine: Engine, clock: Clock, together: bool, limit: int
) -> None:
    flows = await made(ff_engine, clock, 6, together=together)
    partition = PartitionKey("fp", home(flows[0])) if together else None

    pages = await walked(ff_engine, partition, limit)

    assert [flow_id for page in pages for flow_id in page] == flows
    assert [len(page) for page in pages[:-1]] == [limit] * (len(pages) - 1)
    assert pages[-1]


async def test_one_partition_holds_only_its_own(ff_engine: Engine, clock: Clock) -> None:
    flows = await made(ff_engine, clock, 5, together=False)
    for partition in {home(flow_id) for flow_id in flows}:
        page = await ff_engine.list_flows(PartitionKey("fp", partition))
        assert [flow.flow_id for flow in page.flows] == [
            flow_id for flow_id in flows if home(flow_id) == partition
        ]


async def test_flows_are_found_by_status_kind_tag_and_age(ff_engine: Engine, clock: Clock) -> None:
    old, done, other = uuid4(), uuid4(), uuid4()
    await ff_engine.create_flow(old, flow_kind="order", tags={"shop.tenant": "acme"})
    await Graph(ff_engine, old, {}).add("a")
    await clock.advance(10)
    since = await clock.now()
    await ff_engine.create_flow(done, flow_kind="order")
    await ff_engine.create_flow(other, flow_kind="pay")
    await ff_engine.cancel_flow(done)
    await ff_engine.project_flow_summary(old)

    async def found(**fields: Any) -> list[UUID]:
        return [flow.flow_id for flow in (await ff_engine.list_flows(**fields)).flows]

    assert await found(statuses=[FlowStatus.CANCELLED]) == [done]
    assert old in await found(statuses=[FlowStatus.ACTIVE, FlowStatus.FAILED])
    assert done not in await found(statuses=[FlowStatus.ACTIVE])
    assert await found(flow_kind="pay", namespace="default") == [other]
    assert await found(tag=("shop.tenant", "acme")) == [old]
    assert sorted(await found(created_since=since)) == sorted([done, other])
    [first] = (await ff_engine.list_flows(tag=("shop.tenant", "acme"))).flows
    assert first.counts is not None
    assert (first.counts.total, first.counts.waiting, first.tags) == (1, 1, {"shop.tenant": "acme"})
    [member] = (await ff_engine.list_flow_members(old)).members
    assert (member.created_at, member.started_at) == (first.created_at, None)


async def test_what_is_said_of_each(ff_engine: Engine, clock: Clock) -> None:
    flow_id = uuid4()
    await ff_engine.create_flow(flow_id, flow_kind="order", namespace="shop")
    await Graph(ff_engine, flow_id, {}).add("a", "b", namespace="shop")

    [found] = (await ff_engine.list_flows()).flows

    assert (found.flow_id, found.flow_kind, found.namespace) == (flow_id, "order", "shop")
    assert (found.created_at, found.node_count) == (await clock.now(), 2)
    assert found.status is FlowStatus.ACTIVE


async def test_of_one_namespace(ff_engine: Engine) -> None:
    for namespace in ("a", "b", "a"):
        await ff_engine.create_flow(uuid4(), flow_kind="k", namespace=namespace)

    assert len((await ff_engine.list_flows(namespace="a")).flows) == 2
    assert len((await ff_engine.list_flows(namespace="c")).flows) == 0
    page = await ff_engine.list_flows(namespace="a", limit=1)
    rest = await ff_engine.list_flows(namespace="a", limit=1, cursor=page.next_cursor)
    assert (len(rest.flows), rest.next_cursor) == (1, None)


async def test_no_page_at_all(ff_engine: Engine, clock: Clock) -> None:
    nothing = FlowPage(flows=[], next_cursor=None)
    assert await ff_engine.list_flows() == nothing
    await made(ff_engine, clock, 2, together=True)

    assert await ff_engine.list_flows(limit=0) == nothing


@pytest.mark.parametrize("cursor", ["", "1", f"{UUID(int=1)}", f"-1/{UUID(int=1)}", f"{2**63}/0"])
async def test_a_cursor_is_one_of_a_page(ff_engine: Engine, cursor: str) -> None:
    with pytest.raises(ValidationError, match="cursor"):
        await ff_engine.list_flows(cursor=cursor)


MANY_FLOWS = """
INSERT INTO ff.flow_core (
       partition_key, flow_id, flow_kind, namespace, created_at_ms, last_mutation_at_ms)
SELECT n * 7919 % 256, gen_random_uuid(), 'k', CASE WHEN n <= 100 THEN 'rare' ELSE 'a' END, n, n
  FROM generate_series(1, 20000) AS n
"""


async def test_a_page_reads_no_flow_that_it_does_not_list(db: Connection) -> None:
    await db.execute(MANY_FLOWS)
    await db.execute("ANALYZE ff.flow_core")
    filters: list[dict[str, Any]] = [
        {},
        {"namespace": "a"},
        {"namespace": "rare"},
        {"partition": PartitionKey("fp", 7)},
    ]
    for generic in (False, True):
        explained = Explained(db, generic=generic)
        for each in filters:
            page = await list_flows(explained, **each, limit=20)  # type: ignore[arg-type]
            assert len(page.flows) == 20
            await list_flows(explained, **each, limit=20, cursor=page.next_cursor)  # type: ignore[arg-type]
        assert max(cost.buffers for cost in explained.costs) < 400


@pytest.mark.parametrize("family", ["b", "q"])
async def test_only_partitions_of_flows_hold_flows(ff_engine: Engine, family: str) -> None:
    with pytest.raises(ValidationError, match="partition_key"):
        await ff_engine.list_flows(PartitionKey(family, 0))


async def test_a_page_has_no_negative_size(ff_engine: Engine) -> None:
    with pytest.raises(ValidationError, match="limit"):
        await ff_engine.list_flows(limit=-1)
    with pytest.raises(ValidationError, match="limit"):
        await ff_engine.list_flow_members(uuid4(), limit=-1)


# The word for a flow.


async def status(engine: Engine) -> str:
    [found] = (await engine.list_flows()).flows
    return found.status.value


@pytest.mark.parametrize("projected", [True, False])
async def test_the_status_follows_the_members(
    db: Connection, ff_engine: Engine, projected: bool
) -> None:
    flow = await submitted(ff_engine, "a>b")

    async def seen() -> str:
        if projected:
            await ff_engine.project_flow_summary(flow.flow_id)
        return await status(ff_engine)

    assert await seen() == "active"
    await flow.claim("a")
    assert await seen() == "active"
    await flow.complete("a")
    await flow.carry_all()
    assert await seen() == "active"
    await flow.complete("b")
    assert await seen() == "completed"
    await flow.add("c")
    assert await seen() == "active"
    await flow.fail("c")
    assert await seen() == "failed"
    await flow.replay("c")
    assert await seen() == "active"
    await ff_engine.cancel_flow(flow.flow_id, wait=None)
    assert await seen() == "cancelled"


async def test_a_race_that_was_won_is_completed(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>d b>d", policies={"d": AnyOf()})
    await flow.complete("a")
    await ff_engine.dispatch()
    await flow.complete("d")
    await ff_engine.dispatch()

    assert await status(ff_engine) == "completed"


# Members.


async def test_the_members_of_a_flow(ff_engine: Engine, clock: Clock) -> None:
    flow = await submitted(
        ff_engine, "a>b c d", fields={"b": {"execution_kind": "merge", "lane_id": "slow"}}
    )
    await flow.fail("c")
    await flow.cancel("d")

    page = await ff_engine.list_flow_members(flow.flow_id)

    assert page.next_cursor is None
    assert [each.execution_id for each in page.members] == sorted(flow.ids.values())
    by_name = {each.name: each for each in page.members}
    assert (by_name["b"].execution_kind, by_name["b"].lane_id) == ("merge", "slow")
    seen = [(m.public_state.value, m.reason) for m in (by_name[name] for name in "abcd")]
    assert seen == [
        ("waiting", None),
        ("waiting_children", None),
        ("failed", "boom"),
        ("cancelled", "not wanted"),
    ]
    assert by_name["c"].total_attempt_count == 1


@pytest.mark.parametrize("limit", [1, 2, 4, 5])
async def test_members_page_by_page(ff_engine: Engine, limit: int) -> None:
    flow = await submitted(ff_engine, "a b c d")
    seen, cursor = [], None
    while True:
        page = await ff_engine.list_flow_members(flow.flow_id, cursor=cursor, limit=limit)
        seen += [each.execution_id for each in page.members]
        if (cursor := page.next_cursor) is None:
            break
        assert len(page.members) == limit

    assert seen == sorted(flow.ids.values())


async def test_nobody_is_a_member_of_nothing(ff_engine: Engine) -> None:
    flow = await empty(ff_engine)

    for flow_id in (flow.flow_id, uuid4()):
        page = await ff_engine.list_flow_members(flow_id)
        assert (page.members, page.next_cursor) == ([], None)
    assert (await ff_engine.list_flow_members(flow.flow_id, limit=0)).members == []
