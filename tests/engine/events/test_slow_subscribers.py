"""A subscriber that stalls: it costs the others nothing, and itself nothing but time."""

from __future__ import annotations

import asyncio

from flowfabric.db.rows import Connection
from flowfabric.engine.events.subscribe import Hub
from flowfabric.engine.events.subscribe_lease_history import subscribe_lease_history
from tests.engine.events.conftest import opened
from tests.engine.events.facts import claimed_many, taken

MEMORY = 16


def kept(hub: Hub) -> int:
    """How many events the reader of leases keeps."""
    assert hub.leases._reader is not None
    return len(hub.leases._reader._kept)


async def test_a_stalled_subscriber_falls_behind_and_catches_up_without_loss(
    ff_dsn: str, db: Connection
) -> None:
    async with opened(ff_dsn, memory=MEMORY) as hub:
        quick, stalled = await subscribe_lease_history(hub), await subscribe_lease_history(hub)
        await claimed_many(db, 3)
        begun = await taken(stalled, 1)
        told = await taken(quick, 3)
        for _ in range(40):
            await claimed_many(db, 20)
            told += await taken(quick, 20)
            assert kept(hub) <= 2 * MEMORY
        reader = hub.leases._reader
        assert reader is not None
        assert stalled._end < reader._floor

        caught_up = begun + await taken(stalled, len(told) - 1)

        assert caught_up == told
        await claimed_many(db, 2)
        assert await taken(stalled, 2) == await taken(quick, 2)


async def test_a_page_that_is_larger_than_memory_reaches_everybody(
    ff_dsn: str, db: Connection
) -> None:
    async with opened(ff_dsn, memory=MEMORY) as hub:
        one, two = await subscribe_lease_history(hub), await subscribe_lease_history(hub)
        await claimed_many(db, 900)

        first = await taken(one, 900)

        assert [event.event_id for event in first] == sorted({event.event_id for event in first})
        assert await taken(two, 900) == first


async def test_others_go_on_while_a_subscriber_reads_the_table_for_itself(
    ff_dsn: str, db: Connection
) -> None:
    async with opened(ff_dsn, memory=MEMORY) as hub:
        live = await subscribe_lease_history(hub)
        start = live.cursor
        await claimed_many(db, 1000)
        await taken(live, 1000)
        behind = await subscribe_lease_history(hub, start)

        async def catch_up() -> list[int]:
            return [event.event_id for event in await taken(behind, 1100)]

        catching_up = asyncio.create_task(catch_up())
        for _ in range(10):
            await claimed_many(db, 10)
            await taken(live, 10)

        ids = await catching_up
        assert len(ids) == 1100
        assert ids == sorted(ids)
