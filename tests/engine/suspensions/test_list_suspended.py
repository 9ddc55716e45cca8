"""The suspended executions of a partition, page by page."""

from typing import Any
from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.suspensions.list_suspended import (
    SuspendedExecution,
    SuspendedPage,
    list_suspended,
)
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId, PartitionKey
from flowfabric.states import SuspensionReason, TimeoutBehavior
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import NO_DATABASE
from tests.engine.suspensions import parked
from tests.engine.suspensions.parked import Parked, handler, later

HOME = PartitionKey("fp", 7)


async def suspended(db: Connection, home: int = 7, **fields: Any) -> Parked:
    lease = await given.claimed(db, execution_id=ExecutionId(home, uuid4()))
    return await parked.suspended(db, handler(lease, "go", **fields))


async def test_an_entry_says_since_when_and_for_what(db: Connection, clock: Clock) -> None:
    until = await later(clock, 60)
    held = await suspended(db, reason=SuspensionReason.WAITING_FOR_APPROVAL, timeout_at=until)

    page = await list_suspended(db, HOME)

    assert page == SuspendedPage(
        executions=[
            SuspendedExecution(
                execution_id=held.id,
                suspension_id=held.answer.suspension_id,
                suspended_at=await clock.now(),
                reason=SuspensionReason.WAITING_FOR_APPROVAL,
                timeout_at=until,
                timeout_behavior=TimeoutBehavior.AUTO_RESUME,
            )
        ],
        next_cursor=None,
    )


async def test_the_longest_suspended_come_first_and_none_twice(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    held: list[Parked] = []
    for _ in range(3):
        held += sorted([await suspended(db), await suspended(db)], key=lambda each: each.id)
        await clock.advance(1)
    await suspended(db, home=8)
    await ff_engine.resume_execution(held.pop(3).id)

    first = await list_suspended(db, HOME, limit=2)
    await ff_engine.resume_execution(first.executions[-1].execution_id)  # the cursor's own
    second = await list_suspended(db, HOME, cursor=first.next_cursor, limit=2)
    third = await list_suspended(db, HOME, cursor=second.next_cursor, limit=2)

    pages = [first, second, third]
    found = [each.execution_id for page in pages for each in page.executions]
    assert found == [each.id for each in held]
    assert third.next_cursor is None


async def test_a_page_of_none_is_empty(db: Connection) -> None:
    await suspended(db)

    assert await list_suspended(db, HOME, limit=0) == SuspendedPage(executions=[], next_cursor=None)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"cursor": "x"}, "cursor"),
        ({"cursor": "1/2"}, "cursor"),
        ({"limit": -1}, "limit"),
        ({"partition": PartitionKey("b", 1)}, "partition_key"),
    ],
)
async def test_what_no_page_has_is_refused(fields: dict[str, Any], field: str) -> None:
    arguments: dict[str, Any] = {"partition": HOME, **fields}
    with pytest.raises(ValidationError) as raised:
        await list_suspended(NO_DATABASE, **arguments)

    assert raised.value.field == field
