"""Schedules whose executions have a limit."""

from __future__ import annotations

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.quotas.delete_quota_policy import delete_quota_policy
from flowfabric.engine.schedules.explain_schedule import explain_schedule
from flowfabric.engine.schedules.trigger_schedule import trigger_schedule
from flowfabric.engine.schedules.update_schedule import update_schedule
from flowfabric.errors import ValidationError
from flowfabric.states import ScheduleOverlap
from flowfabric.testing import Clock
from tests.engine.quotas import limited
from tests.engine.schedules.stored import BEGIN, HOUR, again, define, fire, outcomes, stored


async def test_executions_of_a_schedule_have_its_limit(db: Connection, clock: Clock) -> None:
    await limited.limit(db, cap=1)
    fields = {"limit": "per-customer", "limit_key": "a"}
    await stored(db, clock, "one", **fields)
    await stored(db, clock, "two", **fields)
    await stored(db, clock, "free")
    await clock.set(BEGIN + HOUR)

    assert await fire(db) == 3

    running = await limited.claimed(db)
    keys = [each.quota_key_id for each in running]
    assert sorted(keys, key=str) == [limited.key("a"), None]
    await limited.ended(db, running)
    [later] = await limited.claimed(db)
    assert later.quota_key_id == limited.key("a")
    assert (await again(db, "one")).definition.limit == "per-customer"


async def test_a_limit_that_is_gone_refuses_the_instants_of_its_schedule_alone(
    db: Connection, clock: Clock
) -> None:
    await limited.limit(db, cap=1)
    await stored(db, clock, "limited", limit="per-customer")
    await stored(db, clock, "free")
    async with db.transaction():
        await delete_quota_policy(db, "per-customer")
    await clock.set(BEGIN + HOUR)

    assert await fire(db) == 2

    assert await outcomes(db, "limited") == ["1 refused"]
    found = [each.message for each in (await explain_schedule(db, "limited")).reasons]
    assert "limit 'per-customer' does not exist, so its instants are refused" in found
    assert not any("limit" in each.message for each in (await explain_schedule(db, "free")).reasons)
    assert await outcomes(db, "free") == ["1 fired"]
    with pytest.raises(ValidationError, match="does not exist"):
        async with db.transaction():
            await trigger_schedule(db, "limited")


async def test_a_changed_limit_counts_from_the_next_instant_on(
    db: Connection, clock: Clock
) -> None:
    await limited.limit(db, cap=1)
    await stored(db, clock)
    async with db.transaction():
        await update_schedule(db, define(limit="per-customer", limit_key="b"))
    await clock.set(BEGIN + HOUR)
    await fire(db)

    [task] = await limited.claimed(db)

    assert task.quota_key_id == limited.key("b")


def test_a_limit_that_executions_cannot_have_is_refused() -> None:
    with pytest.raises(ValidationError, match="limit_key 'a' needs a limit"):
        define(limit_key="a")
    with pytest.raises(ValidationError, match="limit"):
        define(limit="")
    for overlap in (ScheduleOverlap.QUEUE_ONE, ScheduleOverlap.QUEUE_ALL):
        with pytest.raises(ValidationError, match=f"overlap '{overlap}' has limit 'x'"):
            define(limit="x", overlap=overlap)
