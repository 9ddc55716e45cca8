"""The proof that no event is missed: many writers that commit late, and a reader cut many times."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

import pytest

from flowfabric.db.rows import Connection
from flowfabric.db.transaction import repeated
from flowfabric.engine.events.cursor import decode_cursor
from flowfabric.engine.events.lease_events import LeaseEvent
from flowfabric.engine.events.subscribe import Hub
from flowfabric.engine.events.subscribe_lease_history import subscribe_lease_history
from flowfabric.engine.lifecycle.claim import Claimant, claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.release import release
from flowfabric.errors import StreamDisconnected
from flowfabric.ids import ExecutionId
from tests import given
from tests.engine.events.facts import true

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

T = TypeVar("T")
WRITERS = 16
BATCH = 25
EVENTS = 50_000
LATEST_COMMIT = 0.020
ROLLED_BACK = 0.05
KILLS = 20
TURNS = 1 + EVENTS // (WRITERS * BATCH * 2)
READERS = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE application_name = 'flowfabric reader' AND datname = current_database()"
)


class Writer:
    """Takes its own executions, hands them back, again and again, and ends them at last."""

    def __init__(self, number: int, conn: Connection) -> None:
        self._conn = conn
        self._random = random.Random(number)
        self._claimant = Claimant(
            worker_id="w", worker_instance_id=f"w-{number}", lanes=(f"lane-{number}",)
        )

    async def create(self) -> None:
        [lane] = self._claimant.lanes
        await create_execution(self._conn, [given.new(lane_id=lane) for _ in range(BATCH)])

    async def write(self) -> None:
        for turn in range(TURNS):
            leases = await self._committed(self._claim)
            last = turn == TURNS - 1
            await self._committed(partial(self._end if last else self._hand_back, leases))

    async def _claim(self) -> list[Lease]:
        tasks = await claim(self._conn, self._claimant, ttl=120, limit=BATCH)
        return [task.lease for task in tasks]

    async def _hand_back(self, leases: list[Lease]) -> None:
        await release(self._conn, leases)

    async def _end(self, leases: list[Lease]) -> None:
        await complete(self._conn, [Completion(lease) for lease in leases])

    async def _committed(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Change something, commit it late, and do it again if the dice say that it is undone."""
        while True:
            transaction = self._conn.transaction()
            await transaction.start()
            answer = await change()
            await asyncio.sleep(self._random.uniform(0, LATEST_COMMIT))
            if self._random.random() >= ROLLED_BACK:
                await transaction.commit()
                return answer
            await transaction.rollback()


class Follower:
    """Subscribes, and subscribes again with the cursor it was left with."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.seen: list[LeaseEvent] = []
        self.disconnects = 0

    async def follow(self, cursor: bytes) -> None:
        while True:
            subscription = await repeated(
                lambda cursor=cursor: subscribe_lease_history(self._hub, cursor)
            )
            async with subscription:
                try:
                    async for event in subscription:
                        self.seen.append(event)
                except StreamDisconnected as lost:
                    self.disconnects += 1
                    cursor = lost.cursor

    def has_seen(self, event_id: int) -> bool:
        return bool(self.seen) and self.seen[-1].event_id >= event_id


async def naively(conn: Connection, after: int, written: asyncio.Event) -> set[int]:
    """What somebody sees who asks for ids above the last one."""
    seen: set[int] = set()
    while True:
        last_look = written.is_set()
        rows = await conn.fetch(
            "SELECT event_id FROM ff.lease_event WHERE event_id > $1 ORDER BY event_id", after
        )
        seen.update(row["event_id"] for row in rows)
        after = max(seen, default=after)
        if last_look and not rows:
            return seen
        await asyncio.sleep(0.005)


async def kill(db: Connection, follower: Follower) -> None:
    """Cut the reader's connections again and again, while it has something to read."""
    for number in range(1, KILLS + 1):
        await true(lambda due=number * EVENTS // (KILLS + 2): len(follower.seen) >= due, within=60)
        async with asyncio.timeout(10):
            while not await db.fetchval(READERS):
                pass


@pytest.mark.session("cuts sessions by their names")
async def test_every_committed_event_is_seen_in_order_though_writers_are_late_and_readers_cut(
    hub: Hub, db: Connection, another: Callable[[], Awaitable[Connection]]
) -> None:
    writers = [Writer(number, await another()) for number in range(WRITERS)]
    for writer in writers:
        await writer.create()
    async with await subscribe_lease_history(hub) as now:
        start = now.cursor
    written, follower = asyncio.Event(), Follower(hub)
    following = asyncio.create_task(follower.follow(start))
    control = asyncio.create_task(naively(await another(), decode_cursor(start) or 0, written))
    killing = asyncio.create_task(kill(await another(), follower))

    await asyncio.gather(*[writer.write() for writer in writers])
    written.set()
    committed = await db.fetch("SELECT event_id FROM ff.lease_event ORDER BY event_id")
    last = committed[-1]["event_id"]
    await true(lambda: following.done() or follower.has_seen(last), within=60)
    await killing
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following

    ids = [row["event_id"] for row in committed]
    seen = {event.event_id: event for event in follower.seen}
    lost = len(ids) - len(await control)
    print(  # noqa: T201  what was measured, for whoever asks with -s
        f"{len(ids)} events, {ids[-1] - ids[0] + 1 - len(ids)} ids rolled back,"
        f" {follower.disconnects} disconnects, {len(follower.seen) - len(seen)} seen twice;"
        f" the naive reader lost {lost}"
    )
    assert len(ids) >= EVENTS
    assert sorted(seen) == ids
    for story in by_execution(seen.values()):
        assert [event.event_id for event in story] == sorted(event.event_id for event in story)
        assert [str(event.kind) for event in story] == ["acquired", "revoked"] * TURNS
        assert [event.lease_epoch for event in story] == sorted(e.lease_epoch for e in story)
        assert story[-1].reason == "completed"
    assert follower.disconnects > 0
    assert lost > 0


def by_execution(events: Iterable[LeaseEvent]) -> Iterable[list[LeaseEvent]]:
    """The events of each execution, as they were seen first."""
    stories: defaultdict[ExecutionId, list[LeaseEvent]] = defaultdict(list)
    for event in events:
        stories[event.execution_id].append(event)
    return stories.values()
