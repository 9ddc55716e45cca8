"""A flow exists: open, empty, and once for each id."""

from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.create_flow import FlowCreated, FlowExists, create_flow
from flowfabric.errors import ValidationError
from flowfabric.ids import crc16
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases
from tests.engine.controls import NO_DATABASE, Another


async def test_a_new_flow_is_open_and_empty(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow_id = uuid4()

    created = await ff_engine.create_flow(
        flow_id, flow_kind="order", namespace="shop", tags={"shop.tenant": "t"}
    )

    assert created == FlowCreated(flow_id=flow_id)
    [row] = await db.fetch("SELECT * FROM ff.flow_core")
    now = await clock.now_ms()
    assert dict(row) == {
        "partition_key": crc16(flow_id.bytes) % 256,
        "flow_id": flow_id,
        "graph_digest": None,
        "flow_kind": "order",
        "namespace": "shop",
        "public_flow_state": "open",
        "graph_revision": 0,
        "node_count": 0,
        "edge_count": 0,
        "created_at_ms": now,
        "last_mutation_at_ms": now,
        "terminal_at_ms": None,
        "cancel_reason": None,
        "cancellation_policy": None,
        "tags": '{"shop.tenant": "t"}',
    }


async def test_its_summary_says_that_it_is_open(db: Connection, ff_engine: Engine) -> None:
    flow_id = uuid4()

    await ff_engine.create_flow(flow_id, flow_kind="order")

    [row] = await db.fetch("SELECT * FROM ff.flow_summary")
    assert (row["flow_id"], row["public_flow_state"]) == (flow_id, "open")
    assert sum(row[name] for name in row.keys() if "members" in name) == 0  # noqa: SIM118


async def test_nobody_is_told_of_it(db: Connection, ff_engine: Engine) -> None:
    await ff_engine.create_flow(uuid4(), flow_kind="order")

    assert {place for place, _ in await given.everything(db)} == {"flow_core", "flow_summary"}


async def test_the_same_id_again_changes_nothing(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow_id = uuid4()
    await ff_engine.create_flow(flow_id, flow_kind="order", tags={"a.b": "1"})
    before = await given.everything(db)
    await clock.advance(60)

    again = await ff_engine.create_flow(
        flow_id, flow_kind="another", namespace="elsewhere", tags={"a.b": "2", "c.d": "3"}
    )

    assert again == FlowExists(flow_id=flow_id)
    assert await given.everything(db) == before


async def test_a_cancelled_flow_is_not_created_again(db: Connection, ff_engine: Engine) -> None:
    flow_id = uuid4()
    await ff_engine.create_flow(flow_id, flow_kind="order")
    await ff_engine.cancel_flow(flow_id)
    before = await given.everything(db)

    assert await ff_engine.create_flow(flow_id, flow_kind="order") == FlowExists(flow_id=flow_id)

    assert await given.everything(db) == before


async def test_of_two_at_once_one_creates(db: Connection, another: Another) -> None:
    flow_id = uuid4()
    first, second = await another(), await another()
    async with first.transaction():
        created = await create_flow(first, flow_id, flow_kind="order")
        waiting = await given.blocked(db, second, create_flow(second, flow_id, flow_kind="order"))

    assert created == FlowCreated(flow_id=flow_id)
    assert await waiting == FlowExists(flow_id=flow_id)


@all_cases(
    "fields",
    [
        {"flow_kind": ""},
        {"flow_kind": "a\x00b"},
        {"flow_kind": "x" * 257},
        {"namespace": ""},
        {"namespace": "\ud800"},
        {"tags": {"shop.tenant": "x" * 1025}},
        {"tags": {"shop.tenant": "a\x00"}},
    ],
)
async def test_what_cannot_be_stored_is_refused_before_any_sql(fields: dict[str, str]) -> None:
    with pytest.raises(ValidationError) as refused:
        await create_flow(NO_DATABASE, uuid4(), **{"flow_kind": "order", **fields})  # type: ignore[arg-type]

    assert refused.value.code == "invalid_input"


async def test_a_key_that_is_no_tag_key_is_refused_as_such() -> None:
    with pytest.raises(ValidationError) as refused:
        await create_flow(NO_DATABASE, uuid4(), flow_kind="order", tags={"Tenant": "t"})

    assert refused.value.code == "invalid_tag_key"
