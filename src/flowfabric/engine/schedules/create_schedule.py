"""absent → active: schedules exist, and fire from their first instant on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, system_events
from flowfabric.engine.schedules.definition import (
    ScheduleDefinition,
    differences,
    first_instant,
)
from flowfabric.engine.schedules.schedule import (
    DEFINED,
    SCHEDULE_COLUMNS,
    Schedule,
    StoredSchedule,
    defined_row,
    json_rows,
    read_now,
    read_schedules,
)
from flowfabric.engine.schedules.wake_sweeper import wake_sweeper
from flowfabric.errors import ScheduleAlreadyExists
from flowfabric.states import OperatorEventType

CREATE_SCHEDULES: Final[LiteralString] = f"""
-- schedules.create_schedules
INSERT INTO ff.schedule AS s (
       partition_key, namespace, name, spec_kind, cron, tz, every_ms, anchor_ms, at_ms,
       execution_kind, lane_id, payload, payload_encoding, priority, policy, tags,
       required_capabilities, overlap, catch_up, catch_up_window_ms, jitter_ms, starts_at_ms,
       until_ms, runs, runs_left, next_fire_at_ms, source, created_at_ms, created_by)
SELECT g.partition_key, g.namespace, g.name, g.spec_kind, g.cron, g.tz, g.every_ms, g.anchor_ms,
       g.at_ms, g.execution_kind, g.lane_id, decode(g.payload, 'base64'), g.payload_encoding,
       g.priority, g.policy, g.tags, g.required_capabilities, g.overlap, g.catch_up,
       g.catch_up_window_ms, g.jitter_ms, g.starts_at_ms, g.until_ms, g.runs, g.runs,
       g.next_fire_at_ms, g.source, ff.now_ms(), %(actor)s
  FROM {DEFINED}
 ORDER BY g.partition_key, g.namespace, g.name
    ON CONFLICT DO NOTHING
RETURNING {SCHEDULE_COLUMNS}
"""


async def create_schedule(
    conn: Connection,
    definition: ScheduleDefinition,
    *,
    actor: str = DEFAULT_ACTOR,
    partitions: int = 256,
) -> Schedule:
    """The schedule exists; needs a transaction.

    With the same definition again: the stored one, and nothing is written. Raises
    `ScheduleAlreadyExists` if its definition is another one, and `ValidationError` if it would
    never fire.
    """
    created = await create_schedules(conn, [definition], actor=actor, partitions=partitions)
    if created:
        return created[0]
    stored = await read_schedules(
        conn, definition.namespace, [definition.name], partitions=partitions
    )
    existing = stored[definition.name]
    changed = differences(existing.definition, definition)
    if changed:
        raise ScheduleAlreadyExists(definition.name, differs=[each.field for each in changed])
    return existing.schedule()


async def create_schedules(
    conn: Connection,
    definitions: Sequence[ScheduleDefinition],
    *,
    actor: str = DEFAULT_ACTOR,
    partitions: int = 256,
) -> list[Schedule]:
    """Of these schedules those that did not exist, which do now; needs a transaction.

    Raises `ValidationError` for one that would never fire; then none is created.
    """
    check_actor(actor)
    if not definitions:
        return []
    now_ms = await read_now(conn)
    rows = [
        defined_row(
            each := given.anchored(now_ms), first_instant(each, now_ms), partitions=partitions
        )
        for given in definitions
    ]
    stored = await fetch_all(
        conn, CREATE_SCHEDULES, StoredSchedule, rows=json_rows(rows), actor=actor
    )
    if not stored:
        return []
    await system_events(
        conn,
        OperatorEventType.SCHEDULE_CREATED,
        [
            {"namespace": row.namespace, "schedule": row.name, "spec": str(row.spec)}
            for row in stored
        ],
        actor=actor,
        reason=None,
    )
    await wake_sweeper(conn)
    return [row.schedule() for row in stored]
