"""The schedules of a namespace, page by page, in the order of their names."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.schedules.definition import check_word
from flowfabric.engine.schedules.schedule import SCHEDULE_COLUMNS, Schedule, StoredSchedule
from flowfabric.ids import check_name
from flowfabric.pages import check_limit
from flowfabric.states import ScheduleSource, ScheduleState

LIST_SCHEDULES: Final[LiteralString] = f"""
-- schedules.list_schedules
SELECT {SCHEDULE_COLUMNS}
  FROM ff.schedule s
 WHERE s.namespace = %(namespace)s AND s.name > %(cursor)s
   AND (%(state)s::text IS NULL OR s.state = %(state)s)
   AND (%(source)s::text IS NULL OR s.source = %(source)s)
 ORDER BY s.namespace, s.name LIMIT %(limit)s
"""


class SchedulePage(msgspec.Struct, frozen=True, kw_only=True):
    """Some schedules, and the cursor for the next page if there is one."""

    schedules: list[Schedule]
    next_cursor: str | None


async def list_schedules(
    conn: Connection,
    *,
    namespace: str = "default",
    state: ScheduleState | str | None = None,
    source: ScheduleSource | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> SchedulePage:
    """At most `limit` schedules whose names come after `cursor`; raises `ValidationError`."""
    check_name(namespace, field="namespace")
    check_limit(limit)
    rows = await fetch_all(
        conn,
        LIST_SCHEDULES,
        StoredSchedule,
        namespace=namespace,
        state=None if state is None else check_word(state, ScheduleState, field="state").value,
        source=None if source is None else source.value,
        cursor="" if cursor is None else check_name(cursor, field="cursor"),
        limit=limit + 1,
    )
    page = [row.schedule() for row in rows[:limit]]
    return SchedulePage(schedules=page, next_cursor=page[-1].name if len(rows) > limit else None)
