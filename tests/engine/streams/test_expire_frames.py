"""Best-effort frames go when they are too old, unless the stream has others."""

from datetime import timedelta

from flowfabric.db.rows import Connection
from flowfabric.engine.streams.expire_frames import expire_frames
from flowfabric.testing import Clock
from tests import given
from tests.engine.streams.streams import LIVE, appended, frame, meta, texts


async def test_old_best_effort_frames_are_deleted_where_nothing_is_durable(
    db: Connection, clock: Clock
) -> None:
    lease, mixed = await given.claimed(db, ttl=600), await given.claimed(db, ttl=600)
    await appended(db, mixed, frame("live", mode=LIVE, ttl=5), frame("kept"))
    await appended(db, lease, frame("old", mode=LIVE, ttl=5))
    await clock.advance(timedelta(seconds=6))
    await appended(db, lease, frame("newer", mode=LIVE, ttl=5))
    await clock.advance(timedelta(seconds=4))
    await expire_frames(db, 100)
    assert await texts(db, lease) == ["old", "newer"], "not older than twice its time to live"

    await clock.advance(timedelta(milliseconds=1))
    assert await expire_frames(db, 100) == 1
    assert await texts(db, lease) == ["newer"]
    assert (await meta(db, lease.execution_id))["best_effort_kept"] == 1

    await clock.advance(timedelta(seconds=60))
    assert await expire_frames(db, 100) == 1
    assert await texts(db, lease) == []
    assert (await meta(db, lease.execution_id))["expires_at_ms"] is None
    assert await expire_frames(db, 100) == 0
    assert await texts(db, mixed) == ["live", "kept"]
