"""A tail waits for the next frame without a connection, and misses none."""

import asyncio

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.streams import reader
from flowfabric.engine.streams.read_frames import StreamPage
from flowfabric.errors import NotFound, Unavailable
from flowfabric.ids import ExecutionId
from tests import given
from tests.db.facts import until
from tests.engine.streams.streams import appended, frame
from tests.worker.durable.lab import Statements
from tests.worker.proxy import Proxy


def tail(engine: Engine, lease: Lease, after: str = "0-0") -> asyncio.Task[StreamPage]:
    return asyncio.create_task(engine.tail_stream(lease.execution_id, 0, after=after, block=30))


async def registered(db: Connection) -> None:
    async def waits() -> bool:
        return await db.fetchval("SELECT EXISTS (SELECT FROM ff.waiter WHERE topic = 'stream')")

    await until(waits)


@pytest.mark.session("begins when a reader is registered for notifications")
async def test_a_tail_returns_with_the_next_frame(
    db: Connection, ff_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "POLL", 3600.0)
    engine = await Engine.connect(DatabaseConfig(dsn=ff_dsn))
    try:
        lease = await given.claimed(db)
        [first] = await appended(db, lease, frame("first"))
        waiting = tail(engine, lease, str(first.stream_id))
        await registered(db)
        assert not waiting.done()

        await appended(db, lease, frame("second"), frame("third"))

        assert [each.text for each in (await waiting).frames] == ["second", "third"]
    finally:
        await engine.close()


async def test_a_tail_without_news_returns_empty_after_its_time(
    db: Connection, ff_engine: Engine
) -> None:
    lease = await given.claimed(db)
    for execution_id in (lease.execution_id, ExecutionId.mint()):
        page = await ff_engine.tail_stream(execution_id, 0, block=0.2)
        assert (page.frames, page.closed_at) == ([], None)


@pytest.mark.session("begins when a reader is registered for notifications")
async def test_a_tail_returns_when_its_stream_is_closed(db: Connection, ff_engine: Engine) -> None:
    lease = await given.claimed(db)
    [last] = await appended(db, lease, frame("last"))
    waiting = tail(ff_engine, lease, str(last.stream_id))
    await registered(db)
    await ff_engine.complete([Completion(lease)])

    page = await waiting
    assert (page.frames, page.closed_reason) == ([], "attempt_success")


@pytest.mark.session("begins when a reader is registered for notifications")
async def test_an_append_does_not_wait_for_tailers_that_use_the_same_pool(
    db: Connection, ff_dsn: str
) -> None:
    engine = await Engine.connect(DatabaseConfig(dsn=ff_dsn, pool_size=2))
    try:
        leases = [await given.claimed(db) for _ in range(8)]
        tails = [tail(engine, each) for each in leases]
        await registered(db)
        for lease in leases:
            await engine.append_frame(lease, frame(str(lease.execution_id)))
        async with asyncio.timeout(10):
            pages = await asyncio.gather(*tails)
        assert [page.frames[0].text for page in pages] == [str(e.execution_id) for e in leases]
    finally:
        await engine.close()


@pytest.mark.session("listens")
async def test_an_append_wakes_the_readers_of_its_own_stream_alone(
    db: Connection, ff_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, other = await given.claimed(db), await given.claimed(db)
    waiting = tail(ff_engine, lease)
    await registered(db)
    statements = Statements(monkeypatch)
    for _ in range(5):
        await appended(db, other, frame("not for this reader"))
    await appended(db, lease, frame("for it"))
    await waiting

    assert 1 <= statements.sent["streams.read_frames"] <= 3  # two settle the registration


@pytest.mark.session("listens")
async def test_a_lost_notification_costs_a_tail_only_the_time_until_it_polls(
    db: Connection, ff_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "POLL", 0.4)
    engine = await Engine.connect(DatabaseConfig(dsn=ff_dsn))
    try:
        lease = await given.claimed(db)
        waiting = tail(engine, lease)
        await registered(db)
        await db.execute("DELETE FROM ff.waiter")  # nobody is notified any more
        await appended(db, lease, frame("found"))
        assert [each.text for each in (await waiting).frames] == ["found"]
    finally:
        await engine.close()


async def test_a_tail_polls_where_listening_is_disabled(db: Connection, ff_dsn: str) -> None:
    engine = await Engine.connect(DatabaseConfig(dsn=ff_dsn, listen=False))
    try:
        lease = await given.claimed(db)
        waiting = tail(engine, lease)
        await asyncio.sleep(0.1)
        await appended(db, lease, frame("polled"))
        assert [each.text for each in (await waiting).frames] == ["polled"]
    finally:
        await engine.close()


@pytest.mark.session("begins when a reader is registered for notifications")
async def test_a_closed_engine_ends_its_tails(db: Connection, ff_dsn: str) -> None:
    engine = await Engine.connect(DatabaseConfig(dsn=ff_dsn))
    waiting = tail(engine, await given.claimed(db))
    await registered(db)
    await engine.close()

    with pytest.raises(Unavailable, match="closed"):
        await waiting
    with pytest.raises(Unavailable, match="closed"):
        await engine.read_stream(ExecutionId.mint(), 0)


@pytest.mark.session("begins when a reader is registered for notifications")
async def test_a_reader_that_gave_up_leaves_nothing_behind(
    db: Connection, ff_engine: Engine
) -> None:
    lease = await given.claimed(db)
    waiting = tail(ff_engine, lease)
    await registered(db)
    waiting.cancel()
    await asyncio.wait((waiting,))

    assert not ff_engine.streams._waiting  # pyright: ignore[reportPrivateUsage]
    assert len((await ff_engine.read_stream(lease.execution_id, 0)).frames) == 0


async def test_an_unknown_execution_cannot_be_followed(ff_engine: Engine) -> None:
    frames = await ff_engine.follow_stream(ExecutionId.mint())
    with pytest.raises(NotFound):
        await anext(frames)


@pytest.mark.session("cuts sessions")
async def test_a_reader_whose_connections_are_cut_goes_on_without_gap_or_repetition(
    db: Connection, ff_dsn: str
) -> None:
    lease = await given.claimed(db, ttl=600)
    async with Proxy.to(ff_dsn) as proxy:
        engine = await Engine.connect(DatabaseConfig(dsn=proxy.dsn, pool_size=2))
        try:
            read: list[str] = []

            async def follow() -> None:
                async for each in await engine.follow_stream(lease.execution_id):
                    read.append(each.text)

            following = asyncio.create_task(follow())
            for number in range(60):
                await appended(db, lease, frame(str(number)))
                if number % 20 == 10:
                    proxy.cut()
                elif number % 20 == 15:
                    proxy.mend()
                await asyncio.sleep(0.005)
            await complete(db, [Completion(lease)])
            async with asyncio.timeout(20):
                await following
            assert read == [str(number) for number in range(60)]
        finally:
            await engine.close()
