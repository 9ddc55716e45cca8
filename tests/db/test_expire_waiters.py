"""Waiters that ended without deregistering leave rows behind, which a sweep deletes."""

from flowfabric.db.expire_waiters import expire_waiters
from flowfabric.db.rows import Connection
from flowfabric.db.waiter import register

AGE = "UPDATE ff.waiter SET waiting_until_ms = ff.now_ms() - $2 WHERE waiter_id = $1"


async def test_a_registration_is_deleted_a_minute_after_it_expired(db: Connection) -> None:
    for waiter_id in ("waiting", "late", "gone"):
        await register(db, waiter_id, ["completion", "lease"])
    await db.execute(AGE, "late", 50_000)
    await db.execute(AGE, "gone", 60_001)

    assert await expire_waiters(db, limit=10) == 2

    rows = await db.fetch("SELECT DISTINCT waiter_id FROM ff.waiter")
    assert {row["waiter_id"] for row in rows} == {"waiting", "late"}


async def test_no_more_than_the_limit_are_deleted_at_a_time(db: Connection) -> None:
    await register(db, "gone", [f"lane:{number}" for number in range(5)])
    await db.execute(AGE, "gone", 60_001)

    assert [await expire_waiters(db, limit=2) for _ in range(4)] == [2, 2, 1, 0]
