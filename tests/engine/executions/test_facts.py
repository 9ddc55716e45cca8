"""One fact of one execution."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.get_execution_namespace import get_execution_namespace
from flowfabric.engine.executions.get_execution_tag import get_execution_tag
from flowfabric.engine.executions.read_current_attempt_index import read_current_attempt_index
from flowfabric.engine.executions.read_exec_core_fields import read_exec_core_fields
from flowfabric.engine.executions.read_total_attempt_count import read_total_attempt_count
from flowfabric.engine.executions.resolve_execution_flow_id import resolve_execution_flow_id
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.operators.set_execution_tag import set_execution_tag
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId, PartitionKey
from flowfabric.policy import FixedBackoff
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases
from tests.engine.controls import NO_DATABASE

COUNTS = [read_current_attempt_index, read_total_attempt_count]
Read = Callable[[Connection, ExecutionId], Awaitable[Any]]


async def both(db: Connection, execution_id: ExecutionId) -> tuple[int, int]:
    """(attempt_index, total_attempt_count)."""
    return (
        await read_current_attempt_index(db, execution_id),
        await read_total_attempt_count(db, execution_id),
    )


async def test_attempts_are_counted_as_they_begin_and_the_index_points_at_the_next(
    db: Connection,
) -> None:
    policy = given.retrying(backoff=FixedBackoff(delay=0))
    execution_id = await given.created(db, policy=policy)
    assert await both(db, execution_id) == (0, 0)

    [task] = await claim(db, given.WORKER, ttl=30)
    assert await both(db, execution_id) == (0, 1)
    await release(db, [task.lease])
    assert await both(db, execution_id) == (0, 1)
    [task] = await claim(db, given.WORKER, ttl=30)
    assert await both(db, execution_id) == (0, 1)
    await fail(db, [Failure(lease=task.lease, reason="boom")])
    assert await both(db, execution_id) == (1, 1)
    await claim(db, given.WORKER, ttl=30)
    assert await both(db, execution_id) == (1, 2)


async def test_an_index_below_zero_counts_as_zero(db: Connection) -> None:
    execution_id = await given.created(db)
    await db.execute("UPDATE ff.exec_core SET attempt_index = -1")

    assert await read_current_attempt_index(db, execution_id) == 0


@pytest.mark.parametrize("read", COUNTS)
async def test_what_is_not_there_has_no_attempts(db: Connection, read: Read) -> None:
    with pytest.raises(ValidationError, match="execution_id") as raised:
        await read(db, ExecutionId.mint())

    assert raised.value.code == "invalid_input"


async def test_a_tag_is_found_by_its_key(db: Connection) -> None:
    execution_id = await given.created(db, tags={"shop.tenant": "t", "shop.empty": ""})

    assert await get_execution_tag(db, execution_id, "shop.tenant") == "t"
    assert await get_execution_tag(db, execution_id, "shop.empty") == ""
    await set_execution_tag(db, execution_id, "shop.tenant", "new")
    assert await get_execution_tag(db, execution_id, "shop.tenant") == "new"


async def test_a_tag_that_is_not_there_is_none(db: Connection) -> None:
    execution_id = await given.created(db, tags={"shop.tenant": "t"})

    assert await get_execution_tag(db, execution_id, "shop.order") is None
    assert await get_execution_tag(db, ExecutionId.mint(), "shop.tenant") is None


@all_cases("key", ["", "tenant", "Shop.tenant", "a.", "a..b", "a-b.c", "a.b'"])
async def test_a_malformed_key_is_refused_before_any_sql(key: str) -> None:
    with pytest.raises(ValidationError, match="tag key") as raised:
        await get_execution_tag(NO_DATABASE, ExecutionId.mint(), key)

    assert raised.value.code == "invalid_input"


async def test_its_namespace_is_the_one_it_was_created_in(db: Connection) -> None:
    execution_id = await given.created(db, namespace="acme")

    assert await get_execution_namespace(db, execution_id) == "acme"
    assert await get_execution_namespace(db, ExecutionId.mint()) is None


async def test_one_that_stands_alone_has_no_flow(db: Connection) -> None:
    execution_id = await given.created(db)

    assert await resolve_execution_flow_id(db, execution_id) is None
    assert await resolve_execution_flow_id(db, ExecutionId.mint()) is None


async def test_one_that_belongs_to_a_flow_names_it(db: Connection) -> None:
    execution_id = await given.created(db)
    await db.execute("UPDATE ff.exec_core SET flow_id = $1", UUID(int=7))

    assert await resolve_execution_flow_id(db, execution_id) == UUID(int=7)


def home(execution_id: ExecutionId) -> PartitionKey:
    return PartitionKey("fp", execution_id.partition_key)


async def test_columns_come_by_their_names_as_text(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, priority=7)
    execution_id = lease.execution_id

    fields = await read_exec_core_fields(
        db,
        home(execution_id),
        execution_id,
        ["priority", "public_state", "lease_id", "created_at_ms", "resume_pending"],
    )

    assert fields == {
        "priority": "7",
        "public_state": "active",
        "lease_id": str(lease.lease_id),
        "created_at_ms": str(await clock.now_ms()),
        "resume_pending": "false",
    }


async def test_a_column_that_is_null_or_unknown_is_none(db: Connection) -> None:
    execution_id = await given.created(db)

    fields = await read_exec_core_fields(
        db, home(execution_id), execution_id, ["flow_id", "no_such_column", "", "'; DROP TABLE x"]
    )

    assert fields == {"flow_id": None, "no_such_column": None, "": None, "'; DROP TABLE x": None}


async def test_of_what_is_not_there_every_column_is_none(db: Connection) -> None:
    missing = ExecutionId.mint()

    fields = await read_exec_core_fields(db, home(missing), missing, ["priority", "tags"])

    assert fields == {"priority": None, "tags": None}


async def test_no_names_are_no_columns_and_no_sql() -> None:
    missing = ExecutionId.mint()

    assert await read_exec_core_fields(NO_DATABASE, home(missing), missing, []) == {}


@pytest.mark.parametrize("family", ["fp", "b", "q"])
async def test_another_partition_than_its_own_is_refused_before_any_sql(family: str) -> None:
    execution_id = ExecutionId(7, UUID(int=1))
    partition = PartitionKey(family, 8 if family == "fp" else 7)

    with pytest.raises(ValidationError, match="partition_key") as raised:
        await read_exec_core_fields(NO_DATABASE, partition, execution_id, ["priority"])

    assert raised.value.code == "invalid_input"


async def test_reading_changes_nothing(db: Connection, ff_engine: Engine) -> None:
    execution_id = (await given.claimed(db, tags={"shop.tenant": "t"})).execution_id
    before = await given.everything(db)

    assert await ff_engine.read_current_attempt_index(execution_id) == 0
    assert await ff_engine.read_total_attempt_count(execution_id) == 1
    assert await ff_engine.get_execution_tag(execution_id, "shop.tenant") == "t"
    assert await ff_engine.get_execution_namespace(execution_id) == "default"
    assert await ff_engine.resolve_execution_flow_id(execution_id) is None
    assert await ff_engine.read_exec_core_fields(
        home(execution_id), execution_id, ["attempt_index"]
    ) == {"attempt_index": "0"}

    assert await given.everything(db) == before
