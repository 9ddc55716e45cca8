"""terminal → gone: what ended long enough ago is forgotten."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.create_execution import Created, Duplicate, create_execution
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.engine.operators.set_execution_tag import set_execution_tag
from flowfabric.engine.retention.count_trimmable import count_trimmable
from flowfabric.engine.retention.trim import Trim
from flowfabric.engine.retention.trim_retention import trim_retention
from flowfabric.errors import NotFound, ValidationError
from flowfabric.ids import ExecutionId, PartitionKey
from flowfabric.policy import ExecutionPolicy
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
)

YEAR = 365 * 24 * 3600


def ended_before(retention: float, **fields: Any) -> Trim:
    return Trim(lane_id="default", retention=retention, **fields)


async def cancelled(db: Connection, **fields: Any) -> ExecutionId:
    return await execution(db, "cancelled", **fields)


async def kept(db: Connection) -> set[ExecutionId]:
    """The executions that there are."""
    rows = await db.fetch("SELECT partition_key, execution_id FROM ff.execution")
    return {ExecutionId(row["partition_key"], row["execution_id"]) for row in rows}


@pytest.mark.parametrize("state", TERMINAL)
async def test_however_it_ended_it_is_forgotten(db: Connection, clock: Clock, state: str) -> None:
    await execution(db, state)
    await clock.advance(60)

    assert await trim_retention(db, ended_before(60)) == 1

    assert await kept(db) == set()


async def test_it_is_forgotten_exactly_when_its_time_is_over(db: Connection, clock: Clock) -> None:
    await cancelled(db)
    await clock.advance(59.999)
    before = await given.everything(db)
    assert await trim_retention(db, ended_before(60)) == 0
    assert await given.everything(db) == before
    await clock.advance(0.001)

    assert await trim_retention(db, ended_before(60)) == 1


async def test_its_time_counts_from_its_end(db: Connection, clock: Clock) -> None:
    execution_id = await given.created(db)
    await clock.advance(1000)
    await cancel_execution(db, execution_id, reason="no")
    await clock.advance(59)

    assert await trim_retention(db, ended_before(60)) == 0
    assert await trim_retention(db, ended_before(59)) == 1


async def test_without_retention_whatever_has_ended_is_forgotten(
    db: Connection, clock: Clock
) -> None:
    await cancelled(db)

    assert await trim_retention(db, ended_before(0)) == 1


async def test_the_caller_may_say_what_time_it_is(db: Connection, clock: Clock) -> None:
    await cancelled(db)
    now = await clock.now()

    assert await trim_retention(db, ended_before(60), now=now + timedelta(seconds=59.999)) == 0
    assert await trim_retention(db, ended_before(60), now=now + timedelta(seconds=60)) == 1


@pytest.mark.parametrize("state", [*RUNNABLE, "active"])
async def test_what_has_not_ended_is_never_forgotten(
    db: Connection, clock: Clock, state: str
) -> None:
    await execution(db, state)
    await clock.advance(YEAR)
    before = await given.everything(db)

    assert await trim_retention(db, ended_before(0)) == 0

    assert await given.everything(db) == before


async def test_what_was_replayed_is_not_forgotten(db: Connection, clock: Clock) -> None:
    execution_id = await cancelled(db)
    await replay_execution(db, execution_id)
    await clock.advance(YEAR)

    assert await trim_retention(db, ended_before(0)) == 0


async def test_it_leaves_one_event_of_an_operator_and_none_of_the_execution(
    db: Connection, clock: Clock
) -> None:
    await execution(db, "completed")

    await trim_retention(db, ended_before(0), actor="kim")
    await trim_retention(db, ended_before(0), actor="kim")

    [action] = await actions(db)
    assert (action.event_type, action.actor) == ("retention_trimmed", "kim")
    assert action.details == {"lane_id": "default", "deleted": 1, "retention_ms": 0}
    for table in ("lease_event", "completion_event"):
        assert await db.fetchval(f"SELECT count(*) FROM ff.{table}") == 0


async def test_only_the_lane_that_was_named_forgets(db: Connection, clock: Clock) -> None:
    await cancelled(db)
    other = await cancelled(db, lane_id="mail")

    assert await trim_retention(db, ended_before(0), batch_size=10) == 1

    assert await kept(db) == {other}


async def test_a_lane_that_nobody_knows_has_nothing_to_forget(db: Connection) -> None:
    assert await trim_retention(db, Trim(lane_id="unknown", retention=0)) == 0


async def test_only_the_namespace_that_was_named_forgets(db: Connection, clock: Clock) -> None:
    await cancelled(db, namespace="acme")
    other = await cancelled(db)

    assert await trim_retention(db, ended_before(0, namespace="acme")) == 1

    assert await kept(db) == {other}


async def test_only_what_carries_the_tag_is_forgotten(db: Connection, clock: Clock) -> None:
    await cancelled(db, tags={"shop.tenant": "a", "shop.order": "7"})
    others = {
        await cancelled(db, tags={"shop.tenant": "b"}),
        await cancelled(db, tags={"shop.order": "a"}),
        await cancelled(db),
    }

    assert await trim_retention(db, ended_before(0, tag=("shop.tenant", "a"))) == 1

    assert await kept(db) == others


async def test_namespace_and_tag_must_both_fit(db: Connection, clock: Clock) -> None:
    await cancelled(db, namespace="acme", tags={"shop.tenant": "a"})
    others = {
        await cancelled(db, namespace="acme"),
        await cancelled(db, tags={"shop.tenant": "a"}),
    }

    trim = ended_before(0, namespace="acme", tag=("shop.tenant", "a"))
    assert await trim_retention(db, trim) == 1

    assert await kept(db) == others


async def test_only_the_partition_that_was_named_forgets(db: Connection, clock: Clock) -> None:
    await cancelled(db, execution_id=ExecutionId(7, ExecutionId.mint().uuid))
    other = await cancelled(db, execution_id=ExecutionId(8, ExecutionId.mint().uuid))

    assert await trim_retention(db, ended_before(0, partition=PartitionKey("fp", 7))) == 1

    assert await kept(db) == {other}


async def test_batches_follow_one_another_until_one_is_not_full(
    db: Connection, clock: Clock
) -> None:
    for kind in ("a", "b", "a", "b", "a"):
        await cancelled(db, execution_kind=kind)

    batches = [await trim_retention(db, ended_before(0), batch_size=2) for _ in range(4)]

    assert batches == [2, 2, 1, 0]


async def forgotten_one_by_one(db: Connection, count: int) -> list[ExecutionId]:
    """The executions in the order in which batches of one forget them."""
    order: list[ExecutionId] = []
    for _ in range(count):
        before = await kept(db)
        assert await trim_retention(db, ended_before(0), batch_size=1) == 1
        order += before - await kept(db)
    return order


@pytest.mark.parametrize("kinds", ["aaaa", "abcd"], ids=["one kind", "several kinds"])
async def test_what_was_created_first_is_forgotten_first(
    db: Connection, clock: Clock, kinds: str
) -> None:
    executions: list[ExecutionId] = []
    for kind in kinds:
        await clock.advance(1)
        executions.append(await given.created(db, execution_kind=kind))
    for number in (2, 0, 3, 1):
        await cancel_execution(db, executions[number], reason="no")
    await clock.advance(1)

    assert await forgotten_one_by_one(db, 4) == executions


async def test_what_somebody_works_on_is_passed_over(
    db: Connection, another: Another, clock: Clock
) -> None:
    execution_id = await cancelled(db)
    tagging = await another()
    async with tagging.transaction():
        await set_execution_tag(tagging, execution_id, "shop.tenant", "a")
        assert await trim_retention(db, ended_before(0)) == 0

    assert await trim_retention(db, ended_before(0)) == 1
    assert await db.fetchval("SELECT count(*) FROM ff.exec_tag") == 0


async def test_a_tag_for_what_is_being_forgotten_finds_nothing(
    db: Connection, another: Another, clock: Clock
) -> None:
    execution_id = await cancelled(db)
    sweeper, tagging = await another(), await another()
    async with sweeper.transaction():
        await trim_retention(sweeper, ended_before(0))
        waiting = await given.blocked(
            db, tagging, set_execution_tag(tagging, execution_id, "shop.tenant", "a")
        )

    with pytest.raises(NotFound):
        await waiting
    assert await db.fetchval("SELECT count(*) FROM ff.exec_tag") == 0


async def test_two_sweepers_at_once_share_the_work(
    db: Connection, another: Another, clock: Clock
) -> None:
    for _ in range(4):
        await cancelled(db)
    first = await another()
    async with first.transaction():
        assert await trim_retention(first, ended_before(0), batch_size=2) == 2
        assert await trim_retention(db, ended_before(0), batch_size=10) == 2

    assert await kept(db) == set()


async def test_an_id_that_was_forgotten_can_be_created_anew(db: Connection, clock: Clock) -> None:
    execution_id = await cancelled(db)
    await trim_retention(db, ended_before(0))

    [answer] = await create_execution(db, [given.new(execution_id=execution_id)])

    assert isinstance(answer, Created)


async def test_a_key_that_was_forgotten_is_free_again(db: Connection, clock: Clock) -> None:
    first = await cancelled(db, idempotency_key="order-7")
    await trim_retention(db, ended_before(0))

    [answer] = await create_execution(db, [given.new(idempotency_key="order-7")])

    assert isinstance(answer, Created)
    assert answer.execution_id != first


async def test_a_key_that_stands_for_a_later_execution_stays(db: Connection, clock: Clock) -> None:
    short = ExecutionPolicy(dedup_window=5)
    await cancelled(db, idempotency_key="order-7", policy=short)
    await clock.advance(5)
    later = await given.created(db, idempotency_key="order-7")

    assert await trim_retention(db, ended_before(0)) == 1

    [answer] = await create_execution(db, [given.new(idempotency_key="order-7")])
    assert answer == Duplicate(execution_id=later)


async def test_how_many_there_are_is_counted_without_forgetting_any(
    db: Connection, clock: Clock
) -> None:
    for kind in ("a", "b", "a"):
        await cancelled(db, execution_kind=kind, tags={"shop.tenant": "t"})
    await cancelled(db, lane_id="mail", tags={"shop.tenant": "t"})
    await cancelled(db)
    await given.created(db, tags={"shop.tenant": "t"})
    await clock.advance(60)
    before = await given.everything(db)
    trim = ended_before(60, tag=("shop.tenant", "t"))

    assert await count_trimmable(db, trim) == 3

    assert await given.everything(db) == before
    assert await trim_retention(db, trim) == 3
    assert await count_trimmable(db, trim) == 0


async def test_both_pass_through_the_engine(
    db: Connection, clock: Clock, ff_engine: Engine
) -> None:
    await cancelled(db)

    assert await ff_engine.count_trimmable(ended_before(0)) == 1
    assert await ff_engine.trim_retention(ended_before(0), batch_size=1) == 1


@pytest.mark.parametrize("batch_size", [-1, 0, 1001])
async def test_a_batch_is_1_to_1000(batch_size: int) -> None:
    with pytest.raises(ValidationError, match="batch_size"):
        await trim_retention(NO_DATABASE, ended_before(0), batch_size=batch_size)


@all_cases(
    ("fields", "named"),
    [
        ({"lane_id": ""}, "lane_id"),
        ({"lane_id": "größe"}, "lane_id"),
        ({"retention": -0.001}, "retention"),
        ({"retention": float("inf")}, "retention"),
        ({"retention": float("nan")}, "retention"),
        ({"retention": 200 * YEAR}, "retention"),
        ({"partition": PartitionKey("b", 7)}, "partition"),
        ({"tag": ("tenant", "a")}, "tag key"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named) as raised:
        Trim(**({"lane_id": "default", "retention": 0} | fields))

    assert raised.value.code == "invalid_input"


async def test_a_moment_without_a_time_zone_is_refused_before_any_sql() -> None:
    with pytest.raises(ValidationError, match="now"):
        await trim_retention(NO_DATABASE, ended_before(0), now=datetime(2026, 1, 1))
