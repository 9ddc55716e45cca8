"""The next instants of a schedule."""

from __future__ import annotations

from datetime import datetime

from flowfabric.db.rows import Connection
from flowfabric.engine.schedules.get_schedule import read_schedule
from flowfabric.engine.schedules.schedule import StoredSchedule
from flowfabric.instants import instant
from flowfabric.pages import check_limit
from flowfabric.schedules.next_after import next_instants
from flowfabric.states import ScheduleState


async def preview_schedule(
    conn: Connection,
    name: str,
    count: int = 5,
    *,
    namespace: str = "default",
    partitions: int = 256,
) -> list[datetime]:
    """The next `count` instants at which the schedule fires; fewer if it ends before.

    Of a paused schedule those at which it would fire if it were resumed now. Raises `NotFound`,
    and `ValidationError`.
    """
    check_limit(count, field="count")
    return upcoming(await read_schedule(conn, namespace, name, partitions=partitions), count)


def upcoming(stored: StoredSchedule, count: int) -> list[datetime]:
    """The next instants of a schedule; none if it is finished. Raises `ValidationError`."""
    first = stored.next_fire_at_ms
    if stored.state != ScheduleState.ACTIVE or first is None:
        first = stored.definition.first_after(stored.now_ms)
    if stored.state == ScheduleState.FINISHED or first is None:
        return []
    if stored.runs_left is not None:
        count = min(count, stored.runs_left)
    later = next_instants(stored.spec, first, count - 1, until_ms=stored.until_ms)
    return [instant(each) for each in [first, *later]][:count]
