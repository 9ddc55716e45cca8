"""The ids of one partition, page by page."""

from uuid import UUID

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.list_executions import ExecutionPage, list_executions
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId, PartitionKey
from tests import given
from tests.all_cases import all_cases

SEVEN = PartitionKey("fp", 7)


def numbered(n: int, partition: int = 7) -> ExecutionId:
    return ExecutionId(partition, UUID(int=n))


async def filled(db: Connection, *numbers: int, partition: int = 7) -> None:
    await create_execution(db, [given.new(execution_id=numbered(n, partition)) for n in numbers])


async def test_ids_come_in_the_order_of_their_uuid(db: Connection) -> None:
    await filled(db, 3, 1, 2)

    page = await list_executions(db, SEVEN)

    assert page == ExecutionPage(
        executions=[numbered(1), numbered(2), numbered(3)], next_cursor=None
    )


async def test_pages_follow_one_another_without_gap_or_overlap(db: Connection) -> None:
    await filled(db, *range(1, 8))
    pages, cursor = [], None
    while True:
        page = await list_executions(db, SEVEN, cursor=cursor, limit=3)
        pages.append([found.uuid.int for found in page.executions])
        cursor = page.next_cursor
        if cursor is None:
            break

    assert pages == [[1, 2, 3], [4, 5, 6], [7]]


async def test_a_full_last_page_has_no_cursor(db: Connection) -> None:
    await filled(db, 1, 2, 3)

    first = await list_executions(db, SEVEN, limit=3)
    second = await list_executions(db, SEVEN, limit=2)

    assert first.next_cursor is None
    assert second.next_cursor == numbered(2)


async def test_what_is_inserted_above_the_cursor_appears_and_below_does_not(
    db: Connection,
) -> None:
    await filled(db, 10, 20, 30)
    first = await list_executions(db, SEVEN, limit=2)
    await filled(db, 15, 25)

    second = await list_executions(db, SEVEN, cursor=first.next_cursor, limit=5)

    assert [found.uuid.int for found in second.executions] == [25, 30]


async def test_only_the_asked_partition_is_listed(db: Connection) -> None:
    await filled(db, 1)
    await filled(db, 2, partition=8)

    assert (await list_executions(db, SEVEN)).executions == [numbered(1)]
    assert (await list_executions(db, PartitionKey("fp", 9))).executions == []


async def test_no_more_than_a_thousand_are_listed_at_once(db: Connection) -> None:
    await filled(db, *range(1001))

    page = await list_executions(db, SEVEN, limit=5000)

    assert len(page.executions) == 1000
    assert page.next_cursor == numbered(999)


async def test_a_page_of_nothing_is_empty(db: Connection) -> None:
    await filled(db, 1)

    assert await list_executions(db, SEVEN, limit=0) == ExecutionPage(
        executions=[], next_cursor=None
    )


async def test_what_cannot_be_listed_is_refused(db: Connection) -> None:
    with pytest.raises(ValidationError, match="limit"):
        await list_executions(db, SEVEN, limit=-1)
    with pytest.raises(ValidationError, match="partition_key"):
        await list_executions(db, PartitionKey("b", 7))
    with pytest.raises(ValidationError, match="cursor"):
        await list_executions(db, SEVEN, cursor=numbered(1, partition=8))


@all_cases("text", ["fp:7", "{fp}", "{fp:}", "{fp:x}", "{xp:7}", "{fp:256}", "", "{"])
def test_a_malformed_partition_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="partition_key"):
        PartitionKey.parse(text)
