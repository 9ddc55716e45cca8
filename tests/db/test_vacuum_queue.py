"""The queue is vacuumed before its dead rows slow the claims down."""

from flowfabric.db.rows import Connection
from flowfabric.db.vacuum_queue import vacuum_queue
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.reconcile.find_due import find_due
from tests import given

DEAD = "SELECT pg_stat_get_dead_tuples('ff.ready'::regclass)"
VACUUMED = "SELECT pg_stat_get_last_vacuum_time('ff.ready'::regclass)"
COUNTED = "SELECT pg_stat_force_next_flush()"


async def claimed(db: Connection, count: int) -> None:
    """So many executions were queued and claimed, and their queue rows are counted as dead."""
    for _ in range(count):
        await given.created(db)
    assert len(await claim(db, given.WORKER, ttl=30, limit=count)) == count
    await db.execute(COUNTED)


async def test_a_queue_with_many_dead_rows_is_vacuumed(db: Connection) -> None:
    await db.execute("ALTER TABLE ff.ready SET (autovacuum_enabled = off)")
    try:
        await claimed(db, 30)
        before = await db.fetchval(VACUUMED)
        assert await db.fetchval(DEAD) >= 30

        assert await vacuum_queue(db, 1, dead_rows=1_000) == 0
        assert await db.fetchval(VACUUMED) == before

        assert await vacuum_queue(db, 1, dead_rows=10) == 0
        await db.execute(COUNTED)
        assert await db.fetchval(VACUUMED) != before
        assert await db.fetchval(DEAD) < 30
    finally:
        await db.execute("ALTER TABLE ff.ready RESET (autovacuum_enabled)")


async def test_a_short_queue_is_not_due(db: Connection) -> None:
    await claimed(db, 3)

    assert (await find_due(db, "sweeper", ["vacuum_queue"])).due == []
