"""Tags: how many an execution or a flow may have, wherever they are set."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.flows.create_flow import create_flow
from flowfabric.engine.flows.set_flow_tag import set_flow_tag
from flowfabric.engine.operators.set_execution_tag import set_execution_tag
from flowfabric.errors import ValidationError
from flowfabric.tags import MAX_TAGS, MAX_TAGS_BYTES
from tests import given

Another = Callable[[], Awaitable[Connection]]

FULL = {f"shop.t{number}": "v" for number in range(MAX_TAGS)}
HEAVY = {f"shop.t{number}": "v" * 1000 for number in range(20)}


@pytest.mark.parametrize("tags", [FULL | {"shop.more": "v"}, HEAVY])
async def test_more_tags_than_fit_are_refused_where_they_are_created(
    db: Connection, tags: dict[str, str]
) -> None:
    with pytest.raises(ValidationError, match="tags"):
        given.new(tags=tags)
    with pytest.raises(ValidationError, match="tags"):
        await create_flow(db, uuid4(), flow_kind="f", tags=tags)
    with pytest.raises(asyncpg.PostgresError, match="invalid_input: tags") as raised:
        await db.execute(
            "SELECT ff.submit('job', tags => $1::text::jsonb)", msgspec.json.encode(tags).decode()
        )
    assert raised.value.sqlstate == "22023"


@pytest.mark.parametrize("tags", [{5: "v"}, {"a.b": 5}, {"a.b": None}, {None: "v"}, ["a.b"], "a.b"])
async def test_tags_that_are_not_texts_are_refused_by_name(db: Connection, tags: Any) -> None:
    with pytest.raises(ValidationError, match="tag"):
        given.new(tags=tags)


async def test_as_many_tags_as_fit_are_stored(db: Connection) -> None:
    execution_id = await given.created(db, tags=FULL)
    await set_execution_tag(db, execution_id, "shop.t0", "changed")

    with pytest.raises(ValidationError, match=r"shop\.more"):
        await set_execution_tag(db, execution_id, "shop.more", "v")

    stored = msgspec.json.decode((await given.row(db, execution_id))["tags"])
    assert stored == FULL | {"shop.t0": "changed"}
    assert await db.fetchval("SELECT count(*) FROM ff.exec_tag") == MAX_TAGS


async def test_a_tag_that_is_too_heavy_for_the_execution_is_refused(db: Connection) -> None:
    room = MAX_TAGS_BYTES // 1010
    tags = {f"shop.t{number:04}": "v" * 1000 for number in range(room)}
    execution_id = await given.created(db, tags=tags)

    with pytest.raises(ValidationError, match=str(MAX_TAGS_BYTES)):
        await set_execution_tag(db, execution_id, "shop.more", "v" * 1000)


async def test_of_two_tags_at_once_one_gets_the_last_place(
    db: Connection, another: Another
) -> None:
    tags = dict(list(FULL.items())[1:])
    execution_id = await given.created(db, tags=tags)
    first, second = await another(), await another()

    async with first.transaction():
        await set_execution_tag(first, execution_id, "shop.first", "v")
        waiting = await given.blocked(
            db, second, set_execution_tag(second, execution_id, "shop.second", "v")
        )
    [refused] = await asyncio.gather(waiting, return_exceptions=True)

    assert isinstance(refused, ValidationError)
    stored = msgspec.json.decode((await given.row(db, execution_id))["tags"])
    assert stored == tags | {"shop.first": "v"}


async def test_a_flow_has_the_same_limit_also_for_two_at_once(
    db: Connection, another: Another
) -> None:
    tags, flow_id = dict(list(FULL.items())[1:]), uuid4()
    await create_flow(db, flow_id, flow_kind="f", tags=tags)
    first, second = await another(), await another()

    async with first.transaction():
        await set_flow_tag(first, flow_id, "shop.first", "v")
        waiting = await given.blocked(db, second, set_flow_tag(second, flow_id, "shop.second", "v"))
    [refused] = await asyncio.gather(waiting, return_exceptions=True)

    assert isinstance(refused, ValidationError)
    assert msgspec.json.decode(await db.fetchval("SELECT tags FROM ff.flow_core")) == tags | {
        "shop.first": "v"
    }
    await set_flow_tag(db, flow_id, "shop.first", "w")
