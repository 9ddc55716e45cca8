"""A claim does not wait for its WAL; its event is told only once a crash cannot lose it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.events.list_events import list_events
from flowfabric.engine.events.subscribe import Hub
from flowfabric.engine.events.subscribe_lease_history import subscribe_lease_history
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.release import release
from tests import given
from tests.engine.events.facts import claimed_many, taken

END_OF_WAL = "SELECT pg_current_wal_insert_lsn()::text"
IS_FLUSHED = "SELECT pg_current_wal_flush_lsn() >= $1::text::pg_lsn"

# A deferred trigger runs at the commit, with the settings that the commit has.
WITNESS = """
CREATE TABLE public.seen (setting text);
CREATE FUNCTION public.witness() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.seen VALUES (current_setting('synchronous_commit'));
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER witness AFTER INSERT ON ff.lease_event
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.witness();
"""
NO_WITNESS = "DROP FUNCTION public.witness CASCADE; DROP TABLE public.seen"


@pytest.fixture
async def witnessed(db: Connection) -> AsyncGenerator[Connection]:
    """A connection; `public.seen` has the `synchronous_commit` of commits with a lease event."""
    await db.execute(WITNESS)
    try:
        yield db
    finally:
        await db.execute(NO_WITNESS)


async def commits(db: Connection) -> list[str]:
    return [row["setting"] for row in await db.fetch("SELECT setting FROM public.seen")]


async def test_a_claim_commits_without_a_flush_and_what_follows_with_one(
    witnessed: Connection,
) -> None:
    [task] = await claimed_many(witnessed, 1)
    await release(witnessed, [task.lease])

    assert await commits(witnessed) == ["off", "on"]


async def test_a_claim_inside_a_transaction_leaves_its_flush_alone(witnessed: Connection) -> None:
    async with witnessed.transaction():
        await create_execution(witnessed, [given.new()])
        await claim(witnessed, given.WORKER, ttl=30)

    assert await commits(witnessed) == ["on"]


async def by_subscription(hub: Hub, db: Connection, act: Callable[[], Awaitable[None]]) -> None:
    history = await subscribe_lease_history(hub)
    await act()
    await taken(history)


async def by_subscribing_from_now(
    hub: Hub, db: Connection, act: Callable[[], Awaitable[None]]
) -> None:
    await act()
    await subscribe_lease_history(hub)


async def by_list(hub: Hub, db: Connection, act: Callable[[], Awaitable[None]]) -> None:
    await act()
    await list_events(db, "lease")


@pytest.mark.parametrize("told", [by_subscription, by_subscribing_from_now, by_list])
async def test_what_is_told_of_a_claim_is_flushed(
    hub: Hub,
    db: Connection,
    told: Callable[[Hub, Connection, Callable[[], Awaitable[None]]], Awaitable[None]],
) -> None:
    end = ""

    async def act() -> None:
        nonlocal end
        await claimed_many(db, 1)
        end = await db.fetchval(END_OF_WAL)

    await told(hub, db, act)

    assert await db.fetchval(IS_FLUSHED, end)
