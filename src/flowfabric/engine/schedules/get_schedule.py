"""One schedule, with its definition, its state and what it has done so far."""

from __future__ import annotations

from flowfabric.db.rows import Connection
from flowfabric.engine.schedules.schedule import Schedule, StoredSchedule, read_schedules
from flowfabric.errors import NotFound
from flowfabric.ids import check_name


async def get_schedule(
    conn: Connection, name: str, *, namespace: str = "default", partitions: int = 256
) -> Schedule:
    """The schedule of this name; raises `NotFound`."""
    return (await read_schedule(conn, namespace, name, partitions=partitions)).schedule()


async def read_schedule(
    conn: Connection, namespace: str, name: str, *, partitions: int
) -> StoredSchedule:
    """The stored row; raises `NotFound`."""
    check_name(namespace, field="namespace")
    check_name(name, field="name")
    found = await read_schedules(conn, namespace, [name], partitions=partitions)
    if name not in found:
        raise NotFound("schedule", name)
    return found[name]
