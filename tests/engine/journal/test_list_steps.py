"""People read what a handler has done, page by page."""

from datetime import timedelta
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.journal.list_steps import RecordedStep, StepPage, list_steps
from flowfabric.engine.journal.record_entries import record_entries
from flowfabric.errors import NotFound, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.testing import Clock
from tests import given
from tests.engine.journal.journals import DONE, OPEN, SLEEP, STEP, entry, recorded


async def test_a_step_tells_its_key_state_times_and_size(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    now = instant(await clock.now_ms())
    began, due = now - timedelta(seconds=1.5), now + timedelta(days=1)
    await record_entries(
        db,
        [
            entry(
                lease,
                1,
                "fetch",
                item="p",
                occurrence=2,
                tries=3,
                started_at=began,
                encoding="json",
                value=b'"page"',
            ),
            entry(lease, 2, "nap", kind=SLEEP, state=OPEN, started_at=now, due_at=due),
        ],
    )

    page = await list_steps(db, lease.execution_id)

    fetch, nap = page.steps
    assert fetch == RecordedStep(
        seq=1,
        kind=STEP,
        state=DONE,
        name="fetch",
        item="p",
        occurrence=2,
        attempt_index=0,
        tries=3,
        started_at=began,
        took=1.5,
        due_at=None,
        size=6,
        encoding="json",
        value=None,
    )
    assert fetch.key == "fetch:p#2"
    assert (nap.state, nap.took, nap.due_at, nap.size) == (OPEN, None, due, 0)
    assert page.next_after_seq is None


async def test_values_come_if_they_are_asked_for(db: Connection) -> None:
    lease = await given.claimed(db)
    await recorded(db, lease, "one", value=b"1", encoding="json")

    [step] = (await list_steps(db, lease.execution_id, values=True)).steps

    assert (step.value, step.size) == (b"1", 1)


async def test_pages_follow_each_other(db: Connection) -> None:
    lease = await given.claimed(db)
    await recorded(db, lease, *(f"s{n}" for n in range(5)))
    names: list[str] = []
    after: int | None = None
    sizes: list[int] = []
    while True:
        page = await list_steps(db, lease.execution_id, after_seq=after, limit=2)
        names += [step.name for step in page.steps]
        sizes.append(len(page.steps))
        after = page.next_after_seq
        if after is None:
            break

    assert (names, sizes) == ([f"s{n}" for n in range(5)], [2, 2, 1])


async def test_an_execution_without_steps_has_an_empty_page(db: Connection) -> None:
    execution_id = await given.created(db)

    assert await list_steps(db, execution_id) == StepPage(steps=(), next_after_seq=None)


async def test_an_execution_that_does_not_exist_is_not_found(db: Connection) -> None:
    with pytest.raises(NotFound):
        await list_steps(db, ExecutionId.mint())


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"limit": "5"}, "limit"),
        ({"after_seq": "5"}, "after_seq"),
        ({"after_seq": 2**31}, "after_seq"),
        ({"after_seq": True}, "after_seq"),
    ],
)
async def test_bad_arguments_are_refused(
    db: Connection, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValidationError, match=named):
        await list_steps(db, ExecutionId.mint(), **fields)
