"""What became of the instants of a schedule, the newest first."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.schedules.plan_fires import NO_TRIGGER
from flowfabric.engine.schedules.schedule import schedule_key
from flowfabric.ids import ExecutionId
from flowfabric.instants import check_instant, epoch_ms, instant
from flowfabric.pages import check_limit
from flowfabric.states import ScheduleOutcome

LIST_SCHEDULE_FIRES: Final[LiteralString] = """
-- schedules.list_schedule_fires
SELECT fire_at_ms, trigger_id, outcome, execution_partition, execution_id, recorded_at_ms, reason
  FROM ff.schedule_fire
 WHERE (partition_key, namespace, name) = (%(partition_key)s, %(namespace)s, %(name)s)
   AND fire_at_ms < %(before_ms)s
 ORDER BY fire_at_ms DESC, trigger_id DESC LIMIT %(limit)s
"""


class ScheduleFire(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one instant."""

    fire_at: datetime
    outcome: ScheduleOutcome
    execution_id: ExecutionId | None
    recorded_at: datetime
    reason: str | None
    trigger_id: UUID | None
    """Of a trigger."""


class _Row(msgspec.Struct, frozen=True):
    fire_at_ms: int
    trigger_id: UUID
    outcome: str
    execution_partition: int | None
    execution_id: UUID | None
    recorded_at_ms: int
    reason: str | None

    def fire(self) -> ScheduleFire:
        execution = None
        if self.execution_partition is not None and self.execution_id is not None:
            execution = ExecutionId(self.execution_partition, self.execution_id)
        return ScheduleFire(
            fire_at=instant(self.fire_at_ms),
            outcome=ScheduleOutcome(self.outcome),
            execution_id=execution,
            recorded_at=instant(self.recorded_at_ms),
            reason=self.reason,
            trigger_id=None if self.trigger_id == NO_TRIGGER else self.trigger_id,
        )


async def list_schedule_fires(
    conn: Connection,
    name: str,
    *,
    namespace: str = "default",
    before: datetime | None = None,
    limit: int = 100,
    partitions: int = 256,
) -> list[ScheduleFire]:
    """At most `limit` instants before this one, the newest first; raises `ValidationError`.

    Of a schedule that does not exist there are none.
    """
    check_limit(limit)
    last = 2**62 if before is None else epoch_ms(check_instant(before, field="before"))
    key = schedule_key(namespace, name, partitions)
    rows = await fetch_all(conn, LIST_SCHEDULE_FIRES, _Row, before_ms=last, limit=limit, **key)
    return [row.fire() for row in rows]
