"""active → paused: a schedule does not fire until it is resumed."""

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
from flowfabric.errors import ScheduleFinished
from flowfabric.ids import clean_text
from flowfabric.states import OperatorEventType, ScheduleState

PAUSE_SCHEDULE: Final[LiteralString] = f"""
-- schedules.pause_schedule
UPDATE ff.schedule s
   SET state = 'paused', state_by = %(actor)s, state_reason = %(reason)s,
       state_changed_at_ms = ff.now_ms(), revision = s.revision + 1
 WHERE (s.partition_key, s.namespace, s.name) = (%(partition_key)s, %(namespace)s, %(name)s)
RETURNING {SCHEDULE_COLUMNS}
"""


async def pause_schedule(
    conn: Connection,
    name: str,
    *,
    namespace: str = "default",
    reason: str | None = None,
    actor: str = DEFAULT_ACTOR,
    partitions: int = 256,
) -> Schedule:
    """The schedule fires nothing until it is resumed; needs a transaction.

    A schedule that is paused stays as it is. Raises `NotFound`, and `ScheduleFinished`.
    """
    check_actor(actor)
    stored = await lock_schedule(conn, namespace, name, partitions=partitions)
    if stored.state == ScheduleState.PAUSED:
        return stored.schedule()
    if stored.state == ScheduleState.FINISHED:
        raise ScheduleFinished(name)
    paused = await fetch_one(
        conn,
        PAUSE_SCHEDULE,
        StoredSchedule,
        actor=actor,
        reason=None if reason is None else clean_text(reason),
        **schedule_key(namespace, name, partitions),
    )
    await operator_event(
        conn,
        OperatorEventType.SCHEDULE_PAUSED,
        actor=actor,
        reason=reason,
        namespace=namespace,
        schedule=name,
        old_state=stored.state,
    )
    return paused.schedule()
