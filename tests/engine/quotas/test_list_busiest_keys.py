"""The busiest keys of a limit are found among many."""

from __future__ import annotations

from flowfabric.db.rows import Connection
from flowfabric.engine.quotas.list_busiest_keys import list_busiest_keys
from flowfabric.engine.quotas.list_quota_keys import list_quota_keys
from tests.engine.quotas.limited import LIMIT, claimed, created, ended, limit

MANY = 120


async def test_keys_that_hold_back_come_first_then_those_that_run(db: Connection) -> None:
    await limit(db, cap=1, rate=5, window=600)
    names = [f"k{number}" for number in range(MANY)]
    await created(db, *names)
    done = await claimed(db, limit=MANY)
    first = [each.limit_key for each in await list_quota_keys(db, LIMIT, count=100)]
    busy, waits = [name for name in names if name not in first][:2]
    await ended(db, done)
    await created(db, busy, waits, waits, waits)
    await claimed(db, limit=MANY)

    found = await list_busiest_keys(db, LIMIT, count=3)

    assert [each.limit_key for each in found[:2]] == [waits, busy]
    assert [(each.held_slots, each.held_back) for each in found[:2]] == [(1, 2), (1, 0)]
    assert len(found) == 3
    assert await list_busiest_keys(db, LIMIT, namespace="other") == []
