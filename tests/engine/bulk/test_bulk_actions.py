"""Changes of many executions: each once, in batches, until they are done or stopped."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.bulk.action import BulkArguments
from flowfabric.engine.bulk.list_bulk_actions import list_bulk_actions
from flowfabric.engine.bulk.list_bulk_targets import list_bulk_targets
from flowfabric.engine.bulk.preview_bulk_action import preview_bulk_action
from flowfabric.engine.bulk.read_bulk_action import BulkAction, read_bulk_action
from flowfabric.engine.bulk.run_bulk_actions import bulk_due, run_bulk_actions
from flowfabric.engine.bulk.start_bulk_action import filter_words, start_bulk_action
from flowfabric.engine.bulk.stop_bulk_action import stop_bulk_action
from flowfabric.engine.executions.search import Search
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.errors import NotFound, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.states import BulkState, PublicState
from flowfabric.testing import Clock
from tests import given


async def created(db: Connection, number: int, **fields: Any) -> list[ExecutionId]:
    answers = await create_execution(db, [given.new(**fields) for _ in range(number)])
    return [each.execution_id for each in answers]


async def run_all(db: Connection) -> int:
    """How many batches ran until nothing was due."""
    batches = 0
    while await bulk_due(db):
        async with db.transaction():
            await run_bulk_actions(db, 500)
        batches += 1
    return batches


async def started(db: Connection, action: str, **more: Any) -> BulkAction:
    async with db.transaction():
        return await start_bulk_action(db, action, reason="clean up", actor="ann", **more)


async def states(db: Connection, executions: Sequence[ExecutionId]) -> set[PublicState]:
    return {await given.public_state(db, each) for each in executions}


async def test_what_a_search_finds_at_the_start_is_changed_once(db: Connection) -> None:
    some = await created(db, 501, execution_kind="old")
    ended = some[0]
    await cancel_execution(db, ended, reason="before")
    others = await created(db, 1)
    began = await started(db, "cancel", search=Search(namespace="default", execution_kind="old"))
    later = await created(db, 1, execution_kind="old")

    assert (began.total, began.state, began.namespace) == (501, BulkState.RUNNING, "default")
    assert await run_all(db) == 3  # two batches, and the end

    done = await read_bulk_action(db, began.bulk_id)
    assert (done.state, done.done, done.changed, done.repeated) == (BulkState.DONE, 501, 500, 1)
    assert done.filter == {"namespace": "default", "execution_kind": "old"}
    assert await states(db, some[:3]) == {PublicState.CANCELLED}
    assert await states(db, others + later) == {PublicState.WAITING}
    actions = await db.fetch("SELECT event_type, actor, reason FROM ff.operator_event")
    assert sum(row["event_type"] == "cancelled" for row in actions) == 501
    assert [tuple(row) for row in actions if row["event_type"] == "bulk_started"] == [
        ("bulk_started", "ann", "clean up")
    ]
    assert [each.bulk_id for each in await list_bulk_actions(db)] == [began.bulk_id]
    assert await list_bulk_actions(db, namespace="other") == []
    with pytest.raises(NotFound):
        await read_bulk_action(db, began.bulk_id, namespace="other")


async def test_refusals_are_counted_by_their_code_and_listed(db: Connection) -> None:
    waiting = await created(db, 2)
    unknown = ExecutionId.mint()
    began = await started(db, "replay", executions=[*waiting, unknown])
    await run_all(db)

    done = await read_bulk_action(db, began.bulk_id)
    assert done.refused == {"execution_not_terminal": 2, "execution_not_found": 1}
    page = await list_bulk_targets(db, began.bulk_id, result="execution_not_terminal", limit=1)
    assert [each.execution_id for each in page.targets] == [waiting[0]]
    assert page.next_after is not None
    rest = await list_bulk_targets(db, began.bulk_id, after=page.next_after)
    assert [each.execution_id for each in rest.targets] == [waiting[1], unknown]


@pytest.mark.parametrize(
    ("action", "arguments"),
    [
        ("priority", BulkArguments(priority=7)),
        ("tag", BulkArguments(tag_key="shop.tenant", tag_value="acme")),
        ("block", None),
    ],
)
async def test_each_action_changes_what_it_is_for(
    db: Connection, action: str, arguments: BulkArguments | None
) -> None:
    [one] = await created(db, 1)
    began = await started(db, action, executions=[one], arguments=arguments)
    await run_all(db)
    assert (await read_bulk_action(db, began.bulk_id)).changed == 1
    row = await given.row(db, one)
    expected = {
        "priority": row["priority"] == 7,
        "tag": "acme" in row["tags"],
        "block": row["blocking_reason"] == "paused_by_operator",
    }
    assert expected[action]


async def test_a_batch_that_is_rolled_back_runs_again_and_a_stop_ends_the_rest(
    db: Connection, clock: Clock
) -> None:
    some = await created(db, 501)
    began = await started(db, "cancel", search=Search())
    crashed = db.transaction()
    await crashed.start()
    assert await run_bulk_actions(db, 500) == 500
    await crashed.rollback()
    assert (await read_bulk_action(db, began.bulk_id)).done == 0
    async with db.transaction():
        await run_bulk_actions(db, 500)
    async with db.transaction():
        stopped = await stop_bulk_action(db, began.bulk_id, actor="bob")
    assert (stopped.state, stopped.done) == (BulkState.STOPPED, 500)
    assert not await bulk_due(db)
    assert await states(db, some) == {PublicState.CANCELLED, PublicState.WAITING}
    async with db.transaction():
        assert (await stop_bulk_action(db, began.bulk_id)).state is BulkState.STOPPED
        with pytest.raises(NotFound):
            await stop_bulk_action(db, uuid4())


async def test_a_preview_counts_what_can_and_what_cannot_be_changed(db: Connection) -> None:
    some = await created(db, 3)
    await cancel_execution(db, some[0], reason="x")

    found = await preview_bulk_action(db, "cancel", Search(execution_kind="job"))

    assert (found.eligible, found.refused) == (
        {PublicState.WAITING: 2},
        {PublicState.CANCELLED: 1},
    )
    assert len(found.samples) == 3
    assert await states(db, some) == {PublicState.WAITING, PublicState.CANCELLED}


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("action", {"action": "explode"}),
        ("reason", {"reason": ""}),
        ("priority", {"action": "priority"}),
        ("tag_key", {"action": "tag"}),
        ("executions", {"search": None}),
        ("executions", {"executions": [ExecutionId.mint()]}),
    ],
)
async def test_what_cannot_be_done_is_refused(
    db: Connection, field: str, wrong: dict[str, Any]
) -> None:
    fields: dict[str, Any] = {"action": "cancel", "search": Search(), "reason": "x", **wrong}
    with pytest.raises(ValidationError) as refused:
        await start_bulk_action(db, fields.pop("action"), **fields)
    assert refused.value.field == field
    assert await list_bulk_actions(db) == []


def test_what_was_searched_for_is_told_in_words() -> None:
    search = Search(execution_kinds=("job", "mail"), lane_id="fast")

    assert filter_words(search) == {"execution_kinds": "job, mail", "lane_id": "fast"}
