"""How long executions of some kinds usually run: the median of those that succeeded lately."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.activity.histogram import counted, quantile
from flowfabric.errors import invalid_input
from flowfabric.ids import storable_text
from flowfabric.policy import milliseconds

MAX_KINDS: Final = 1000
WINDOW: Final = timedelta(days=7)

# Routes by namespace and kind first; an array begins with bucket 0 at place 1.
READ_USUAL_TIMES: Final[LiteralString] = """
-- activity.read_usual_times
WITH routes AS MATERIALIZED (
    SELECT route_id, execution_kind FROM ff.route
     WHERE namespace = %(namespace)s AND execution_kind = ANY (%(execution_kinds)s::text[])
)
SELECT routes.execution_kind, (ran.place - 1)::integer AS bucket, sum(ran.ended)::bigint AS ended
  FROM ff.activity a JOIN routes USING (route_id)
 CROSS JOIN LATERAL unnest(a.ran) WITH ORDINALITY AS ran (ended, place)
 WHERE a.begins_at_ms >= ff.now_ms() - %(window_ms)s::bigint AND a.outcome = 'success'
   AND ran.ended > 0
 GROUP BY routes.execution_kind, ran.place
"""


class _Row(msgspec.Struct, frozen=True):
    execution_kind: str
    bucket: int
    ended: int


async def read_usual_times(
    conn: Connection, execution_kinds: Sequence[str], *, namespace: str = "default"
) -> dict[str, float]:
    """The median seconds that the last attempt of each kind ran, of successes of the last 7 days.

    A kind without any is left out. Raises `ValidationError(invalid_input)` for more than 1,000
    kinds.
    """
    if len(execution_kinds) > MAX_KINDS:
        raise invalid_input("execution_kinds", len(execution_kinds), f"at most {MAX_KINDS}")
    rows = await fetch_all(
        conn,
        READ_USUAL_TIMES,
        _Row,
        namespace=storable_text(namespace, field="namespace"),
        execution_kinds=[storable_text(each, field="execution_kind") for each in execution_kinds],
        window_ms=milliseconds(WINDOW),
    )
    buckets: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        buckets.setdefault(row.execution_kind, []).append((row.bucket, row.ended))
    medians = {kind: quantile(counted(pairs), 0.5) for kind, pairs in buckets.items()}
    return {kind: seconds for kind, seconds in medians.items() if seconds is not None}
