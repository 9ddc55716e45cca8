"""One tag of an execution gets a value; the execution does not move."""

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.get_execution_tag import get_execution_tag
from flowfabric.engine.executions.search_executions import Search, search_executions
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.set_execution_tag import set_execution_tag
from flowfabric.errors import NotFound, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases
from tests.engine.controls import (
    NO_DATABASE,
    RUNNABLE,
    TERMINAL,
    Another,
    actions,
    execution,
    waiting,
)


async def tags(db: Connection, execution_id: ExecutionId) -> dict[str, str]:
    """The tags of the row, which are those of the search too."""
    stored = msgspec.json.decode((await given.row(db, execution_id))["tags"])
    listed = await db.fetch(
        "SELECT tag_key, tag_value FROM ff.exec_tag WHERE execution_id = $1", execution_id.uuid
    )
    assert {row["tag_key"]: row["tag_value"] for row in listed} == stored
    return stored


async def test_an_execution_without_tags_gets_one(db: Connection, clock: Clock) -> None:
    execution_id = await given.created(db)
    await clock.advance(5)

    await set_execution_tag(db, execution_id, "shop.tenant", "t")

    assert await tags(db, execution_id) == {"shop.tenant": "t"}
    assert await get_execution_tag(db, execution_id, "shop.tenant") == "t"
    assert (await given.row(db, execution_id))["last_mutation_at_ms"] == await clock.now_ms()


async def test_a_tag_that_it_has_is_overwritten_and_the_others_stay(db: Connection) -> None:
    execution_id = await given.created(db, tags={"shop.tenant": "old", "shop.order": "7"})

    await set_execution_tag(db, execution_id, "shop.tenant", "new")

    assert await tags(db, execution_id) == {"shop.tenant": "new", "shop.order": "7"}


@pytest.mark.parametrize("state", [*RUNNABLE, "active", *TERMINAL])
async def test_wherever_it_stands_it_does_not_move(
    db: Connection, clock: Clock, state: str
) -> None:
    execution_id = await execution(db, state)
    before = await given.row(db, execution_id)

    await set_execution_tag(db, execution_id, "shop.tenant", "t")

    after = await given.row(db, execution_id)
    assert {name for name in after if after[name] != before[name]} == {"tags"}
    assert await tags(db, execution_id) == {"shop.tenant": "t"}


async def test_the_search_finds_it_by_its_new_value_and_not_by_the_old(db: Connection) -> None:
    execution_id = await given.created(db, tags={"shop.tenant": "old"})

    await set_execution_tag(db, execution_id, "shop.tenant", "new")

    found = await search_executions(db, Search(tag=("shop.tenant", "new")))
    gone = await search_executions(db, Search(tag=("shop.tenant", "old")))
    assert [row.execution_id for row in found.executions] == [execution_id]
    assert gone.executions == []


async def test_a_change_leaves_an_operator_event_and_a_repeat_none(db: Connection) -> None:
    execution_id = await given.created(db)

    for value in ("t", "t", "u"):
        await set_execution_tag(db, execution_id, "shop.tenant", value, actor="ann", reason="x")

    [first, second] = await actions(db)
    assert (first.event_type, first.actor, first.reason) == (
        "execution_tagged",
        "ann",
        "x",
    )
    assert second.details == {
        "key": "shop.tenant",
        "value": "u",
        "old_value": "t",
    }
    assert await given.lease_events(db, execution_id) == []
    assert await given.completion_events(db, execution_id) == []


async def test_later_events_of_every_family_carry_it(db: Connection) -> None:
    execution_id = await given.created(db)
    await set_execution_tag(db, execution_id, "cairn.instance_id", "i-7")

    await claim(db, given.WORKER, ttl=30)
    await cancel_execution(db, execution_id, reason="no")

    for table in ("lease_event", "completion_event", "operator_event"):
        told = await db.fetch(f"SELECT tags FROM ff.{table} WHERE execution_id IS NOT NULL")
        assert told
        for row in told:
            assert msgspec.json.decode(row["tags"]) == {"cairn.instance_id": "i-7"}


@pytest.mark.parametrize("value", ["", "x" * 1024, "ä" * 512, "' OR 1=1 --", '{"a": 1}', "a\nb"])
async def test_a_value_is_free_text(db: Connection, value: str) -> None:
    execution_id = await given.created(db)

    await set_execution_tag(db, execution_id, "shop.tenant", value)

    assert await tags(db, execution_id) == {"shop.tenant": value}


async def test_what_is_not_there_cannot_be_tagged(db: Connection) -> None:
    before = await given.everything(db)

    with pytest.raises(NotFound) as raised:
        await set_execution_tag(db, ExecutionId.mint(), "shop.tenant", "t")

    assert raised.value.entity == "execution"
    assert await given.everything(db) == before


BAD_KEYS = [
    "",
    "tenant",
    "Shop.tenant",
    "shop.Tenant",
    "7shop.tenant",
    "a.",
    ".a",
    "a..b",
    "a b.c",
    "a.b c",
    "a-b.c",
    "a.b-c",
    "a.'b",
    'a."b',
    "a.b\n",
    "a.b\x00",
    "a.ä",
    "a." + "b" * 255,
]


@all_cases("key", BAD_KEYS)
async def test_a_malformed_key_is_refused_before_any_sql(key: str) -> None:
    with pytest.raises(ValidationError, match="tag key") as raised:
        await set_execution_tag(NO_DATABASE, ExecutionId.mint(), key, "t")

    assert raised.value.code == "invalid_input"


@pytest.mark.parametrize("value", ["a\x00b", "\ud800", "x" * 1025, "ä" * 513])
async def test_a_value_that_cannot_be_stored_is_refused_before_any_sql(value: str) -> None:
    with pytest.raises(ValidationError, match=r"tag shop\.tenant") as raised:
        await set_execution_tag(NO_DATABASE, ExecutionId.mint(), "shop.tenant", value)

    assert raised.value.code == "invalid_input"


async def test_two_tags_set_at_once_are_both_there(db: Connection, another: Another) -> None:
    execution_id = await given.created(db)
    first, second = await another(), await another()
    async with first.transaction():
        await set_execution_tag(first, execution_id, "shop.tenant", "t")
        waiting = await given.blocked(
            db, second, set_execution_tag(second, execution_id, "shop.order", "7")
        )
    await waiting

    assert await tags(db, execution_id) == {"shop.tenant": "t", "shop.order": "7"}


async def test_of_two_values_set_at_once_the_later_stays(db: Connection, another: Another) -> None:
    execution_id = await given.created(db)
    first, second = await another(), await another()
    async with first.transaction():
        await set_execution_tag(first, execution_id, "shop.tenant", "first")
        waiting = await given.blocked(
            db, second, set_execution_tag(second, execution_id, "shop.tenant", "second")
        )
    await waiting

    assert await tags(db, execution_id) == {"shop.tenant": "second"}


@pytest.mark.parametrize("key", ["a.b", "a1_.0", "shop.tenant.id", "_".join(["a"] * 9) + ".x_"])
async def test_a_well_formed_key_is_taken(db: Connection, key: str) -> None:
    execution_id = await given.created(db)

    await set_execution_tag(db, execution_id, key, "t")

    assert await tags(db, execution_id) == {key: "t"}


async def test_it_passes_through_the_engine(db: Connection, ff_engine: Engine) -> None:
    execution_id = await given.created(db)

    await ff_engine.set_execution_tag(execution_id, "shop.tenant", "t")

    assert await tags(db, execution_id) == {"shop.tenant": "t"}


async def test_a_tag_waits_for_a_claim_and_its_event_has_the_lease(
    db: Connection, another: Another
) -> None:
    execution_id = await given.created(db)
    rival = await another()

    async with rival.transaction():
        await claim(rival, given.WORKER, ttl=10)
        tagged = await waiting(
            rival, set_execution_tag(db, execution_id, "shop.tenant", "t", actor="ann")
        )
    await tagged

    epoch = "SELECT lease_epoch FROM ff.operator_event WHERE execution_id = $1"
    assert await db.fetchval(epoch, execution_id.uuid) == 1
