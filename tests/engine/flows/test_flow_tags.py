"""Tags of a flow."""

from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.errors import NotFound, ValidationError
from tests import given
from tests.engine.flows.graphs import empty


async def test_a_tag_is_set_and_set_again(ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a")

    await ff_engine.set_flow_tag(flow.flow_id, "shop.tenant", "one")
    await ff_engine.set_flow_tag(flow.flow_id, "a.b.c", "x")
    await ff_engine.set_flow_tag(flow.flow_id, "shop.tenant", "two")

    assert await ff_engine.get_flow_tag(flow.flow_id, "shop.tenant") == "two"
    found = await ff_engine.describe_flow(flow.flow_id)
    assert found is not None
    assert list(found.tags.items()) == [("a.b.c", "x"), ("shop.tenant", "two")]
    assert found.graph_revision == 1


async def test_a_cancelled_flow_can_be_tagged(ff_engine: Engine) -> None:
    flow = await empty(ff_engine)
    await ff_engine.cancel_flow(flow.flow_id)

    await ff_engine.set_flow_tag(flow.flow_id, "a.b", "x")

    assert await ff_engine.get_flow_tag(flow.flow_id, "a.b") == "x"


async def test_a_missing_tag_and_a_missing_flow_are_none(ff_engine: Engine) -> None:
    flow = await empty(ff_engine)

    assert await ff_engine.get_flow_tag(flow.flow_id, "shop.tenant") is None
    assert await ff_engine.get_flow_tag(uuid4(), "shop.tenant") is None


async def test_there_must_be_such_a_flow_to_tag(db: Connection, ff_engine: Engine) -> None:
    before = await given.everything(db)

    with pytest.raises(NotFound) as error:
        await ff_engine.set_flow_tag(uuid4(), "a.b", "x")

    assert error.value.code == "flow_not_found"
    assert await given.everything(db) == before


@pytest.mark.parametrize("key", ["", "tenant", "Shop.tenant", "1a.b", "a.", ".b", "a.B", "a-b.c"])
async def test_a_key_looks_like_area_and_name(db: Connection, ff_engine: Engine, key: str) -> None:
    flow = await empty(ff_engine)
    before = await given.everything(db)
    for call in (
        ff_engine.set_flow_tag(flow.flow_id, key, "x"),
        ff_engine.get_flow_tag(flow.flow_id, key),
    ):
        with pytest.raises(ValidationError) as error:
            await call
        assert error.value.code == "invalid_tag_key"
        assert repr(key) in str(error.value)
    assert await given.everything(db) == before


@pytest.mark.parametrize("value", ["a\x00b", "\ud800", "x" * 1025])
async def test_a_value_must_be_storable(db: Connection, ff_engine: Engine, value: str) -> None:
    flow = await empty(ff_engine)

    with pytest.raises(ValidationError):
        await ff_engine.set_flow_tag(flow.flow_id, "a.b", value)


async def test_a_value_is_kept_as_it_is(ff_engine: Engine) -> None:
    flow = await empty(ff_engine)
    for value in ("", '"quoted" \\ {}', "größe 😀", "x" * 1024):
        await ff_engine.set_flow_tag(flow.flow_id, "a.b", value)
        assert await ff_engine.get_flow_tag(flow.flow_id, "a.b") == value
