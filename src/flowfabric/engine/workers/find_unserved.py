"""Kinds that no live worker serves on their lane and namespace, and workers that do elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.served import ServedElsewhere, read_elsewhere, unserved_text

# The registry has a row for each worker process, of all namespaces: it is read once.
FIND_UNSERVED: Final[LiteralString] = """
-- workers.find_unserved
WITH asked AS (
    SELECT * FROM unnest(%(execution_kind)s::text[], %(lane_id)s::text[])
        AS asked (execution_kind, lane_id)
), alive AS MATERIALIZED (
    SELECT namespace, worker_instance_id, lanes, kinds FROM ff.worker_registry
     WHERE last_heartbeat_ms + liveness_ttl_ms > ff.now_ms()
)
SELECT asked.execution_kind, asked.lane_id,
       (SELECT coalesce(jsonb_agg(jsonb_build_array(w.worker_instance_id, w.namespace, w.lanes)),
                        '[]')::text
          FROM (SELECT w.* FROM alive w
                 WHERE asked.execution_kind = ANY (w.kinds)
                 ORDER BY w.namespace <> %(namespace)s, asked.lane_id <> ALL (w.lanes),
                          w.worker_instance_id
                 LIMIT 3) AS w) AS elsewhere
  FROM asked
 WHERE NOT EXISTS (SELECT FROM alive w
                    WHERE w.namespace = %(namespace)s AND asked.lane_id = ANY (w.lanes)
                      AND (w.kinds = '{}' OR asked.execution_kind = ANY (w.kinds)))
"""


class Unserved(msgspec.Struct, frozen=True, kw_only=True):
    """No live worker serves the kind on the lane in the namespace; `elsewhere`: those that do."""

    execution_kind: str
    lane_id: str
    namespace: str
    elsewhere: list[ServedElsewhere]

    def __str__(self) -> str:
        return unserved_text(self.execution_kind, self.lane_id, self.namespace, self.elsewhere)


class _Row(msgspec.Struct, frozen=True):
    execution_kind: str
    lane_id: str
    elsewhere: str


async def find_unserved(
    conn: Connection, namespace: str, kinds: Sequence[tuple[str, str]]
) -> list[Unserved]:
    """Of these pairs of kind and lane, those that no live worker of the namespace serves.

    Each comes with at most three workers that serve the kind: first those of the namespace on other
    lanes, then those of other namespaces. Capabilities are not compared.
    """
    if not kinds:
        return []
    rows = await fetch_all(
        conn,
        FIND_UNSERVED,
        _Row,
        namespace=namespace,
        execution_kind=[kind for kind, _ in kinds],
        lane_id=[lane for _, lane in kinds],
    )
    return [
        Unserved(
            execution_kind=row.execution_kind,
            lane_id=row.lane_id,
            namespace=namespace,
            elsewhere=read_elsewhere(row.elsewhere),
        )
        for row in rows
    ]
