"""Flows by status, kind, tag and age; and the states of the members of one."""

from datetime import timedelta
from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.search_flows import search_flows
from flowfabric.errors import ValidationError
from flowfabric.states import PublicState
from flowfabric.testing import Clock
from tests.engine.flows.graphs import submitted
from tests.engine.flows.test_list_flows import MANY_FLOWS
from tests.explained import Explained


async def test_flows_are_found_by_status_kind_tag_and_age(ff_engine: Engine, clock: Clock) -> None:
    done = await submitted(ff_engine, "a")
    await done.complete("a")
    await clock.advance(10)
    broken = await submitted(ff_engine, "a>b c")
    await broken.fail("a")
    await ff_engine.dispatch()
    await clock.advance(10)
    running = await submitted(ff_engine, "a")
    await running.claim("a")
    other = uuid4()
    await ff_engine.create_flow(other, flow_kind="import", namespace="shop")
    await ff_engine.set_flow_tag(other, "shop.tenant", "acme")
    now = await clock.now()

    async def found(**filters: object) -> list[object]:
        page = await ff_engine.search_flows(**filters)  # type: ignore[arg-type]
        return [flow.flow_id for flow in page.flows]

    assert set(await found()) == {done.flow_id, broken.flow_id, running.flow_id, other}
    assert await found(statuses=["completed"]) == [done.flow_id]
    assert await found(flow_kind="import") == [other]
    assert await found(namespace="shop", statuses=["active", "failed"]) == [other]
    assert await found(tag=("shop.tenant", "acme")) == [other]
    assert await found(tag=("shop.tenant", "other")) == []
    assert set(await found(since=now - timedelta(seconds=5))) == {running.flow_id, other}
    assert await found(namespace="nowhere") == []
    assert await found(limit=0) == []
    with pytest.raises(ValidationError, match="cursor"):
        await ff_engine.search_flows(cursor="1")
    with pytest.raises(ValidationError, match="tag"):
        await ff_engine.search_flows(tag=("Not A Key", ""))


async def test_a_flow_that_was_found_says_when_it_ended_and_counts_its_members(
    ff_engine: Engine, clock: Clock
) -> None:
    flow = await submitted(ff_engine, "a>b")
    began = await clock.now()
    await flow.complete("a")
    await ff_engine.dispatch()
    await clock.advance(5)
    await flow.complete("b")
    await ff_engine.project_flow_summary(flow.flow_id)
    await clock.advance(5)

    [found] = (await ff_engine.search_flows()).flows

    assert (found.created_at, found.ended_at) == (began, began + timedelta(seconds=5))
    assert (found.node_count, found.status) == (2, "completed")
    assert found.members is not None
    assert (found.members.total, found.members.completed) == (2, 2)


async def test_pages_of_a_search_follow_one_another(ff_engine: Engine, clock: Clock) -> None:
    for _ in range(3):
        await ff_engine.create_flow(uuid4(), flow_kind="k")
        await clock.advance(1)

    first = await ff_engine.search_flows(limit=2)
    rest = await ff_engine.search_flows(limit=2, cursor=first.next_cursor)

    assert (len(first.flows), len(rest.flows), rest.next_cursor) == (2, 1, None)
    assert len({flow.flow_id for flow in [*first.flows, *rest.flows]}) == 3


async def test_a_page_of_a_search_reads_few_flows_that_it_does_not_list(db: Connection) -> None:
    await db.execute(MANY_FLOWS)
    await db.execute("ANALYZE ff.flow_core")
    for generic in (False, True):
        explained = Explained(db, generic=generic)
        for namespace in (None, "rare"):
            page = await search_flows(explained, namespace=namespace, limit=20)  # type: ignore[arg-type]
            assert len(page.flows) == 20
        assert max(cost.buffers for cost in explained.costs) < 600


async def test_the_states_of_the_members_in_the_order_of_their_list(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b c d")
    await flow.complete("c")
    await flow.claim("d")

    found = await ff_engine.read_flow_states(flow.flow_id)
    described = await ff_engine.describe_flow(flow.flow_id)
    listed = await ff_engine.list_flow_members(flow.flow_id)

    assert found is not None
    assert described is not None
    assert found.graph_revision == described.graph_revision
    assert found.states == [member.public_state for member in listed.members]
    assert {PublicState.COMPLETED, PublicState.ACTIVE} < set(found.states)
    assert await ff_engine.read_flow_states(uuid4()) is None
