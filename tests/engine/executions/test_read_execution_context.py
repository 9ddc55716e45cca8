"""What an execution was given."""

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.read_execution_context import (
    ExecutionContext,
    read_execution_context,
)
from flowfabric.engine.operators.set_execution_tag import set_execution_tag
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId
from tests import given
from tests.engine.controls import RUNNABLE, TERMINAL, execution


async def test_its_input_kind_and_tags_come_back(db: Connection) -> None:
    execution_id = await given.created(
        db,
        execution_kind="send",
        input_payload=b"\x00\xff{}",
        payload_encoding="json",
        tags={"shop.tenant": "t", "a.b": "c"},
    )

    context = await read_execution_context(db, execution_id)

    assert context == ExecutionContext(
        input_payload=b"\x00\xff{}",
        payload_encoding="json",
        execution_kind="send",
        tags={"a.b": "c", "shop.tenant": "t"},
    )
    assert list(context.tags) == ["a.b", "shop.tenant"]


async def test_without_input_it_is_empty(db: Connection) -> None:
    context = await read_execution_context(db, await given.created(db))

    assert (context.input_payload, context.payload_encoding, context.tags) == (b"", None, {})


@pytest.mark.parametrize("state", [*RUNNABLE, "active", *TERMINAL])
async def test_it_is_the_same_wherever_the_execution_stands(db: Connection, state: str) -> None:
    execution_id = await execution(db, state, input_payload=b"order")

    assert (await read_execution_context(db, execution_id)).input_payload == b"order"


async def test_a_tag_that_was_set_later_is_among_them(db: Connection) -> None:
    execution_id = await given.created(db)
    await set_execution_tag(db, execution_id, "shop.tenant", "t")

    assert (await read_execution_context(db, execution_id)).tags == {"shop.tenant": "t"}


async def test_what_is_not_there_was_given_nothing(db: Connection) -> None:
    with pytest.raises(ValidationError, match="execution_id") as raised:
        await read_execution_context(db, ExecutionId.mint())

    assert raised.value.code == "invalid_input"


async def test_reading_changes_nothing(db: Connection, ff_engine: Engine) -> None:
    lease = await given.claimed(db, input_payload=b"order")
    before = await given.everything(db)

    assert (await ff_engine.read_execution_context(lease.execution_id)).input_payload == b"order"

    assert await given.everything(db) == before
