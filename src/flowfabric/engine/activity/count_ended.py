"""How many executions ended with each outcome in a window of time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.activity.read_activity import LONGEST
from flowfabric.engine.activity.store_activity import MINUTE_MS
from flowfabric.errors import invalid_input
from flowfabric.ids import check_lane, storable_text
from flowfabric.policy import milliseconds

COUNT_ENDED: Final[LiteralString] = """
-- activity.count_ended
SELECT a.outcome, sum(a.ended)::bigint AS ended
  FROM ff.activity a JOIN ff.route r USING (route_id)
 WHERE a.begins_at_ms > ff.now_ms() - %(window_ms)s::bigint
   AND (%(namespace)s::text IS NULL OR r.namespace = %(namespace)s)
   AND (%(lane_id)s::text IS NULL OR r.lane_id = %(lane_id)s)
   AND (%(execution_kinds)s::text[] IS NULL OR r.execution_kind = ANY (%(execution_kinds)s))
 GROUP BY a.outcome
"""


class _Row(msgspec.Struct, frozen=True):
    outcome: str
    ended: int


async def count_ended(
    conn: Connection,
    *,
    window: float | timedelta,
    namespace: str | None = None,
    lane_id: str | None = None,
    execution_kinds: Sequence[str] = (),
) -> dict[str, int]:
    """By outcome: how many ended within the last `window`; an outcome that did not occur is out.

    The sweep that counts is some seconds behind. Raises `ValidationError(invalid_input)` for a
    window under a minute or over 30 days.
    """
    window_ms = milliseconds(window, field="window")
    if not MINUTE_MS <= window_ms <= milliseconds(LONGEST):
        raise invalid_input("window", window, "must be a minute to 30 days")
    if lane_id is not None:
        check_lane(lane_id)
    if namespace is not None:
        storable_text(namespace, field="namespace")
    kinds = [storable_text(each, field="execution_kind") for each in execution_kinds]
    rows = await fetch_all(
        conn,
        COUNT_ENDED,
        _Row,
        window_ms=window_ms,
        namespace=namespace,
        lane_id=lane_id,
        execution_kinds=kinds or None,
    )
    return {row.outcome: row.ended for row in rows}
