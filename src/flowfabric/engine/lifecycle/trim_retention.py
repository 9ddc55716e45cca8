"""terminal → gone: what ended long enough ago is forgotten, with everything kept of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.errors import invalid_input
from flowfabric.ids import PartitionKey, check_lane, check_tag_key
from flowfabric.instants import check_instant, epoch_ms
from flowfabric.policy import milliseconds

DEFAULT_RETENTION: Final = timedelta(hours=24)
"""For how long a finished execution is kept on a lane that says nothing else."""

MAX_BATCH: Final = 1000

_OLD_OF_LANE: Final[LiteralString] = """WITH oldest AS (     -- of each route, then of all
    SELECT found.partition_key, found.execution_id
      FROM ff.route r CROSS JOIN LATERAL (
           SELECT e.partition_key, e.execution_id, e.terminal_at_ms FROM ff.exec_core e
            WHERE e.route_id = r.route_id AND e.lifecycle_phase = 'terminal'
              AND (e.flow_id IS NULL OR EXISTS (  -- members stay while their flow is not settled
                       SELECT FROM ff.settled_flow s
                        WHERE (s.partition_key, s.flow_id) = (e.partition_key, e.flow_id)))
              AND e.terminal_at_ms <= coalesce(%(now_ms)s, ff.now_ms()) - %(retention_ms)s::bigint
              AND (%(partition_key)s::smallint IS NULL OR e.partition_key = %(partition_key)s)
              AND (%(tag_key)s::text IS NULL OR e.tags ->> %(tag_key)s = %(tag_value)s::text)
            ORDER BY e.terminal_at_ms LIMIT %(limit)s) AS found
     WHERE r.lane_id = %(lane_id)s
       AND (%(namespace)s::text IS NULL OR r.namespace = %(namespace)s)
     ORDER BY found.terminal_at_ms LIMIT %(limit)s
), old AS (           -- passing over rows in use, such as by a replay
    SELECT e.partition_key, e.execution_id
      FROM ff.exec_core e JOIN oldest USING (partition_key, execution_id)
     WHERE e.lifecycle_phase = 'terminal'
       FOR UPDATE OF e SKIP LOCKED
)"""

TRIM_RETENTION: Final[LiteralString] = (
    """
-- lifecycle.trim_retention
"""
    + _OLD_OF_LANE
    + """, forgotten AS (
    SELECT ff.forget_executions(array_agg(partition_key), array_agg(execution_id)) FROM old
)
SELECT count(*) AS moved FROM old WHERE (SELECT count(*) FROM forgotten) IS NOT NULL
"""
)

COUNT_TRIMMABLE: Final[LiteralString] = """
-- lifecycle.count_trimmable
SELECT count(*) AS moved
  FROM ff.route r JOIN ff.exec_core e USING (route_id)
 WHERE r.lane_id = %(lane_id)s
   AND (%(namespace)s::text IS NULL OR r.namespace = %(namespace)s)
   AND e.lifecycle_phase = 'terminal'
   AND (e.flow_id IS NULL OR EXISTS (
            SELECT FROM ff.settled_flow s
             WHERE (s.partition_key, s.flow_id) = (e.partition_key, e.flow_id)))
   AND e.terminal_at_ms <= coalesce(%(now_ms)s, ff.now_ms()) - %(retention_ms)s::bigint
   AND (%(partition_key)s::smallint IS NULL OR e.partition_key = %(partition_key)s)
   AND (%(tag_key)s::text IS NULL OR e.tags ->> %(tag_key)s = %(tag_value)s::text)
"""

FORGET_FINISHED: Final[LiteralString] = """
-- lifecycle.forget_finished
WITH old AS (         -- by what each lane says; 0 keeps
    SELECT found.partition_key, found.execution_id
      FROM ff.lane_registry l JOIN ff.route r USING (lane_id) CROSS JOIN LATERAL (
           SELECT e.partition_key, e.execution_id FROM ff.exec_core e
            WHERE e.route_id = r.route_id AND e.lifecycle_phase = 'terminal'
              AND (e.flow_id IS NULL OR EXISTS (  -- members stay while their flow is not settled
                       SELECT FROM ff.settled_flow s
                        WHERE (s.partition_key, s.flow_id) = (e.partition_key, e.flow_id)))
              AND e.terminal_at_ms <= ff.now_ms() - coalesce(l.retention_ms, %(default_ms)s::bigint)
            ORDER BY e.terminal_at_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED) AS found
     WHERE l.retention_ms IS DISTINCT FROM 0
     LIMIT %(limit)s
), forgotten AS (
    SELECT ff.forget_executions(array_agg(partition_key), array_agg(execution_id)) FROM old
)
SELECT count(*) AS moved FROM old WHERE (SELECT count(*) FROM forgotten) IS NOT NULL
"""


class Trim(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be forgotten: what ended on a lane at least `retention` ago, and matches."""

    lane_id: str
    retention: float | timedelta
    partition: PartitionKey | None = None
    namespace: str | None = None
    tag: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        check_lane(self.lane_id)
        if milliseconds(self.retention, field="retention") < 0:
            raise invalid_input("retention", self.retention, "must not be negative")
        if self.partition is not None and self.partition.family != "fp":
            raise invalid_input("partition", str(self.partition), "holds no executions")
        if self.tag is not None:
            check_tag_key(self.tag[0])


async def trim_retention(
    conn: Connection, trim: Trim, *, batch_size: int = 500, now: datetime | None = None
) -> int:
    """Forget at most `batch_size`, and say how many; the caller goes on while a batch was full."""
    if not 1 <= batch_size <= MAX_BATCH:
        raise invalid_input("batch_size", batch_size, f"must be 1 to {MAX_BATCH}")
    return (
        await fetch_one(conn, TRIM_RETENTION, Moved, limit=batch_size, **_parameters(trim, now))
    ).moved


async def count_trimmable(conn: Connection, trim: Trim, *, now: datetime | None = None) -> int:
    """How many `trim_retention` would forget in all; nothing changes."""
    return (await fetch_one(conn, COUNT_TRIMMABLE, Moved, **_parameters(trim, now))).moved


async def forget_finished(conn: Connection, limit: int) -> int:
    """Forget at most `limit` executions that ended longer ago than their lane keeps them."""
    return (
        await fetch_one(
            conn, FORGET_FINISHED, Moved, limit=limit, default_ms=milliseconds(DEFAULT_RETENTION)
        )
    ).moved


def _parameters(trim: Trim, now: datetime | None) -> dict[str, object]:
    tag_key, tag_value = trim.tag or (None, None)
    return {
        "lane_id": trim.lane_id,
        "retention_ms": milliseconds(trim.retention),
        "partition_key": None if trim.partition is None else trim.partition.index,
        "namespace": trim.namespace,
        "tag_key": tag_key,
        "tag_value": tag_value,
        "now_ms": None if now is None else epoch_ms(check_instant(now, field="now")),
    }
