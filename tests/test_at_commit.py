"""What waits for the commit of a transaction."""

from __future__ import annotations

import asyncio
import contextlib

from flowfabric.at_commit import at_commit, calls_at_commit, in_transaction
from flowfabric.counters import EventCount


def test_calls_are_made_after_the_commit_and_not_after_a_rollback() -> None:
    made: list[str] = []
    with calls_at_commit():
        at_commit(lambda: made.append("committed"))
        assert (made, in_transaction()) == ([], True)
    with contextlib.suppress(KeyError), calls_at_commit():
        at_commit(lambda: made.append("rolled back"))
        raise KeyError("x")
    at_commit(lambda: made.append("outside"))

    assert made == ["committed", "outside"]


async def test_a_task_that_outlives_its_transaction_does_not_wait_for_it() -> None:
    counted, go_on = EventCount("x", ""), asyncio.Event()

    async def later() -> None:
        await go_on.wait()
        counted.add()

    with calls_at_commit():
        counted.add(count=2)
        task = asyncio.create_task(later())
        assert counted.values[()] == 0
    go_on.set()
    await task

    assert counted.values[()] == 3
