"""A schedule gets another definition, which counts from now."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
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
    lock_schedule,
)
from flowfabric.engine.schedules.wake_sweeper import wake_sweeper
from flowfabric.errors import ScheduleChanged
from flowfabric.states import OperatorEventType

# A pause is not part of the definition and stays.
UPDATE_SCHEDULE: Final[LiteralString] = f"""
-- schedules.update_schedule
UPDATE ff.schedule s
   SET spec_kind = g.spec_kind, cron = g.cron, tz = g.tz, every_ms = g.every_ms,
       anchor_ms = g.anchor_ms, at_ms = g.at_ms, execution_kind = g.execution_kind,
       lane_id = g.lane_id, payload = decode(g.payload, 'base64'),
       payload_encoding = g.payload_encoding, priority = g.priority, policy = g.policy,
       tags = g.tags, required_capabilities = g.required_capabilities,
       limit_name = g.limit_name, limit_key = g.limit_key, overlap = g.overlap,
       catch_up = g.catch_up, catch_up_window_ms = g.catch_up_window_ms, jitter_ms = g.jitter_ms,
       starts_at_ms = g.starts_at_ms, until_ms = g.until_ms, source = g.source, runs = g.runs,
       runs_left = CASE WHEN g.runs IS NOT DISTINCT FROM s.runs AND s.runs_left > 0
                        THEN s.runs_left ELSE g.runs END,
       next_fire_at_ms = g.next_fire_at_ms, revision = s.revision + 1,
       edited_by = CASE g.source WHEN 'code' THEN %(edited_by)s::text END,
       state = CASE s.state WHEN 'paused' THEN 'paused' ELSE 'active' END,
       state_by = CASE s.state WHEN 'paused' THEN s.state_by END,
       state_reason = CASE s.state WHEN 'paused' THEN s.state_reason END
  FROM {DEFINED}
 WHERE (s.partition_key, s.namespace, s.name) = (g.partition_key, g.namespace, g.name)
RETURNING {SCHEDULE_COLUMNS}
"""


async def update_schedule(
    conn: Connection,
    definition: ScheduleDefinition,
    *,
    revision: int | None = None,
    reason: str | None = None,
    actor: str = DEFAULT_ACTOR,
    from_code: bool = False,
    partitions: int = 256,
) -> Schedule:
    """The schedule of this name has this definition; needs a transaction.

    Its next instant is the first after now; what was due before is not fired. A schedule that was
    finished or broken is active again. A schedule from code keeps who changed it, unless the
    definition is `from_code` too. With the same definition nothing is written. Raises
    `NotFound`, `ScheduleChanged` if `revision` is given and not the current one, and
    `ValidationError` if it would never fire.
    """
    check_actor(actor)
    stored = await lock_schedule(conn, definition.namespace, definition.name, partitions=partitions)
    if revision is not None and revision != stored.revision:
        raise ScheduleChanged(definition.name, expected=revision, current=stored.revision)
    changed = differences(stored.definition, definition)
    if not changed:
        return stored.schedule()
    kept = definition
    if definition.spec.every == stored.spec.every:  # an interval keeps its rhythm
        kept = definition.anchored(stored.anchor_ms or stored.now_ms)
    kept = kept.anchored(stored.now_ms)
    row = defined_row(kept, first_instant(kept, stored.now_ms), partitions=partitions)
    updated = await fetch_one(
        conn,
        UPDATE_SCHEDULE,
        StoredSchedule,
        rows=json_rows([row]),
        edited_by=None if from_code else actor,
    )
    await operator_event(
        conn,
        OperatorEventType.SCHEDULE_UPDATED,
        actor=actor,
        reason=reason,
        namespace=stored.namespace,
        schedule=stored.name,
        changes=[str(each) for each in changed],
    )
    await wake_sweeper(conn)
    return updated.schedule()
