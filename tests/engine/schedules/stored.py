"""Where a test of schedules begins: a definition, a stored schedule, and what it has done."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.schedules.create_schedule import create_schedule
from flowfabric.engine.schedules.definition import ScheduleDefinition
from flowfabric.engine.schedules.fire_schedules import fire_schedules
from flowfabric.engine.schedules.get_schedule import get_schedule
from flowfabric.engine.schedules.list_schedule_fires import ScheduleFire, list_schedule_fires
from flowfabric.engine.schedules.schedule import Schedule
from flowfabric.ids import ExecutionId
from flowfabric.schedules.spec import spec_of
from flowfabric.testing import Clock
from tests.given import WORKER

BEGIN = datetime.fromisoformat("2027-01-05T00:00:00+00:00")
HOUR = timedelta(hours=1)


def define(name: str = "hourly", **fields: Any) -> ScheduleDefinition:
    """An hourly schedule of kind `job`; everything has a default."""
    timing = {each: fields.pop(each, None) for each in ("cron", "tz", "every", "at")}
    if not any(timing.values()):
        timing["cron"] = "0 * * * *"
    spec = spec_of(**timing, starts=fields.get("starts") if timing["every"] else None)
    return ScheduleDefinition(name=name, spec=spec, **{"execution_kind": "job", **fields})


async def stored(db: Connection, clock: Clock, name: str = "hourly", **fields: Any) -> Schedule:
    """A schedule that was created at the beginning, `BEGIN`."""
    await clock.set(BEGIN)
    async with db.transaction():
        return await create_schedule(db, define(name, **fields))


async def fire(db: Connection, limit: int = 500) -> int:
    async with db.transaction():
        return await fire_schedules(db, limit)


async def history(db: Connection, name: str = "hourly") -> list[ScheduleFire]:
    """What became of its instants, the oldest first."""
    return list(reversed(await list_schedule_fires(db, name, limit=1000)))


async def outcomes(db: Connection, name: str = "hourly") -> list[str]:
    """`hour outcome` of each instant, the hour counted from `BEGIN`."""
    return [f"{(each.fire_at - BEGIN) / HOUR:g} {each.outcome}" for each in await history(db, name)]


async def again(db: Connection, name: str = "hourly") -> Schedule:
    return await get_schedule(db, name)


async def end(db: Connection, count: int = 10) -> list[ExecutionId]:
    """What can be claimed runs and completes, the oldest first; which."""
    claimed = await claim(db, WORKER, limit=count, ttl=30)
    await complete(db, [Completion(each.lease) for each in claimed])
    return [each.lease.execution_id for each in claimed]
