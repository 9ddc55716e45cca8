"""How many schedules there are in each state."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import check_name
from flowfabric.states import ScheduleState

COUNT_SCHEDULES: Final[LiteralString] = """
-- schedules.count_schedules
SELECT state, count(*) AS schedules FROM ff.schedule
 WHERE namespace = coalesce(%(namespace)s, namespace)
 GROUP BY state
"""


class _Counted(msgspec.Struct, frozen=True):
    state: str
    schedules: int


async def count_schedules(
    conn: Connection, *, namespace: str | None = None
) -> dict[ScheduleState, int]:
    """The number of schedules in every state, of all namespaces or one: the metric `ff_schedules`.

    Raises `ValidationError` for a namespace that cannot be.
    """
    if namespace is not None:
        check_name(namespace, field="namespace")
    rows = await fetch_all(conn, COUNT_SCHEDULES, _Counted, namespace=namespace)
    counted = {row.state: row.schedules for row in rows}
    return {state: counted.get(state.value, 0) for state in ScheduleState}
