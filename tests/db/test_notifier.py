"""Notifications of a process: the first at once, many together, and one after the last change."""

from __future__ import annotations

import asyncio

import pytest

from flowfabric.db.listen import CHANNEL
from flowfabric.db.notifier import Notifier, notifies, notifying_later
from flowfabric.db.rows import Connection
from flowfabric.db.waiter import register
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.create_execution import create_execution
from tests import given
from tests.db.facts import until

LEFT = "SELECT count(*) FROM ff.execution WHERE lifecycle_phase <> 'terminal'"


@pytest.mark.session("listens for notifications, which needs LISTEN")
async def test_many_ends_are_notified_together_and_the_last_of_them_too(
    db: Connection, ff_engine: Engine
) -> None:
    await create_execution(db, [given.new() for _ in range(60)])
    tasks = await claim(db, given.WORKER, ttl=30, limit=60)
    await register(db, "test", ["completion"])
    heard: list[asyncio.Task[int]] = []

    def notified(*_: object) -> None:
        heard.append(asyncio.create_task(left()))

    async def left() -> int:
        async with ff_engine.pool.connection() as conn:
            return await conn.fetchval(LEFT)

    await db.add_listener(CHANNEL, notified)
    for task in tasks:
        await ff_engine.complete([Completion(task.lease)])

    async def heard_of_the_last() -> bool:
        await db.execute("SELECT 1")
        return 0 in [await each for each in [*heard]]

    await until(heard_of_the_last)
    assert len(heard) < 40


async def test_a_statement_inside_a_transaction_notifies_itself() -> None:
    assert [notifies("completion"), notifies("completion")] == [True, True]


async def test_topics_do_not_keep_one_another_waiting() -> None:
    sent: list[list[str]] = []

    async def send(topics: object) -> None:
        assert isinstance(topics, list)
        sent.append(topics)

    notifier = Notifier(send)
    with notifying_later(notifier):
        assert [notifies("a"), notifies("b"), notifies("a"), notifies("b")] == [
            True,
            True,
            False,
            False,
        ]

    async def both_sent() -> bool:
        await asyncio.sleep(0)
        return sent == [["a", "b"]]

    await until(both_sent)
