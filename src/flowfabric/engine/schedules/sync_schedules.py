"""The schedules of an application are stored as it defines them."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR
from flowfabric.engine.schedules.create_schedule import create_schedules
from flowfabric.engine.schedules.definition import ScheduleDefinition
from flowfabric.engine.schedules.delete_schedule import delete_schedule
from flowfabric.engine.schedules.diff_schedules import ScheduleDiff, diff_schedules
from flowfabric.engine.schedules.update_schedule import update_schedule


async def sync_schedules(
    conn: Connection,
    definitions: Sequence[ScheduleDefinition],
    *,
    namespace: str = "default",
    missing_only: bool = False,
    prune: bool = False,
    actor: str = DEFAULT_ACTOR,
    partitions: int = 256,
) -> ScheduleDiff:
    """Missing schedules are created and changed ones updated; the differences there were.

    Needs a transaction. With `missing_only` none is updated; with `prune` orphans are deleted.
    Pauses stay. Raises `ValidationError` for a schedule that would never fire.
    """
    found = await diff_schedules(conn, definitions, namespace=namespace, partitions=partitions)
    by_name = {each.name: each for each in definitions}
    await create_schedules(
        conn, [by_name[name] for name in found.missing], actor=actor, partitions=partitions
    )
    if not missing_only:
        for changed in sorted(found.changed, key=lambda each: each.name):
            await update_schedule(
                conn, by_name[changed.name], actor=actor, from_code=True, partitions=partitions
            )
    if prune:
        for name in found.orphans:
            await delete_schedule(
                conn,
                name,
                namespace=namespace,
                reason="not defined any more",
                actor=actor,
                partitions=partitions,
            )
    return found
