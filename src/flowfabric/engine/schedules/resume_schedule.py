"""paused or broken → active: a schedule fires again."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.engine.schedules.schedule import (
    SCHEDULE_COLUMNS,
    Schedule,
    StoredSchedule,
    lock_schedule,
    schedule_key,
)
from flowfabric.engine.schedules.wake_sweeper import wake_sweeper
from flowfabric.errors import ScheduleFinished
from flowfabric.states import OperatorEventType, ScheduleState

RESUME_SCHEDULE: Final[LiteralString] = f"""
-- schedules.resume_schedule
UPDATE ff.schedule s
   SET state = CASE WHEN %(next_ms)s::bigint IS NULL THEN 'finished' ELSE 'active' END,
       next_fire_at_ms = %(next_ms)s, state_by = NULL, state_reason = NULL,
       state_changed_at_ms = ff.now_ms(), revision = s.revision + 1
 WHERE (s.partition_key, s.namespace, s.name) = (%(partition_key)s, %(namespace)s, %(name)s)
RETURNING {SCHEDULE_COLUMNS}
"""


async def resume_schedule(
    conn: Connection,
    name: str,
    *,
    namespace: str = "default",
    catch_up: bool = False,
    reason: str | None = None,
    actor: str = DEFAULT_ACTOR,
    partitions: int = 256,
) -> Schedule:
    """The schedule fires again, from its first instant after now; needs a transaction.

    With `catch_up` the pause counts as an outage: the instants since are caught up as far as the
    schedule catches up. One whose last instant passed meanwhile is finished. A schedule that is
    active stays as it is. Raises `NotFound`, `ScheduleFinished`, and `ValidationError` if its next
    instant still cannot be computed.
    """
    check_actor(actor)
    stored = await lock_schedule(conn, namespace, name, partitions=partitions)
    if stored.state == ScheduleState.ACTIVE:
        return stored.schedule()
    if stored.state == ScheduleState.FINISHED:
        raise ScheduleFinished(name)
    next_ms = stored.definition.first_after(stored.now_ms)
    if catch_up and stored.next_fire_at_ms is not None:
        next_ms = stored.next_fire_at_ms
    resumed = await fetch_one(
        conn,
        RESUME_SCHEDULE,
        StoredSchedule,
        next_ms=next_ms,
        **schedule_key(namespace, name, partitions),
    )
    await operator_event(
        conn,
        OperatorEventType.SCHEDULE_RESUMED,
        actor=actor,
        reason=reason,
        namespace=namespace,
        schedule=name,
        old_state=stored.state,
        catch_up=catch_up,
    )
    await wake_sweeper(conn)
    return resumed.schedule()
