"""Every lane with its state, and how many executions on it have not ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lanes.lane_version import lane_version
from flowfabric.instants import epoch_ms, instant
from flowfabric.states import LaneState

# The queue can be long: its index alone is read, in order, and nothing is computed for a row. The
# other counts read partial indexes of executions that have not ended; ended ones are not read.
COUNT_BY_LANE: Final[LiteralString] = """
-- lanes.count_by_lane
WITH queued AS (      -- by route first: there are few routes
    SELECT route_id, count(*) AS waiting, min(created_at_ms) AS oldest_ms
      FROM ff.ready GROUP BY route_id
), other AS (         -- executions that are delayed, run, or are blocked
    SELECT route_id, lifecycle_phase, eligibility_state FROM ff.exec_core
     WHERE delay_until_ms IS NOT NULL
     UNION ALL
    SELECT e.route_id, 'active', 'not_applicable'
      FROM ff.lease l CROSS JOIN LATERAL (
           SELECT e.route_id FROM ff.exec_core e
            WHERE (e.partition_key, e.execution_id) = (l.partition_key, l.execution_id)
           OFFSET 0) AS e
     UNION ALL
    SELECT route_id, lifecycle_phase, eligibility_state FROM ff.exec_core
     WHERE exceptional_state IN ('suspended', 'blocked_by_dependencies', 'blocked_by_budget',
               'blocked_by_quota', 'blocked_by_route', 'blocked_by_lane_state',
               'blocked_by_operator', 'paused_by_flow_cancel')
), counted AS (
    SELECT route_id, waiting, 0 AS delayed, 0 AS active, 0 AS suspended, 0 AS waiting_children,
           0 AS rate_limited, 0 AS blocked, oldest_ms
      FROM queued
     UNION ALL
    SELECT route_id, 0,
           count(*) FILTER (WHERE eligibility_state = 'not_eligible_until_time'),
           count(*) FILTER (WHERE lifecycle_phase = 'active'),
           count(*) FILTER (WHERE lifecycle_phase = 'suspended'),
           count(*) FILTER (WHERE eligibility_state = 'blocked_by_dependencies'),
           count(*) FILTER (WHERE eligibility_state IN ('blocked_by_budget', 'blocked_by_quota')),
           count(*) FILTER (WHERE eligibility_state IN (
               'blocked_by_route', 'blocked_by_lane_state', 'blocked_by_operator')),
           NULL
      FROM other GROUP BY route_id
)
SELECT l.lane_id, l.lane_state, l.state_changed_at_ms, l.state_changed_by, l.state_reason,
       l.retention_ms, l.registered_at_ms, coalesce(sum(c.waiting), 0)::bigint AS waiting,
       coalesce(sum(c.delayed), 0)::bigint AS delayed, coalesce(sum(c.active), 0)::bigint AS active,
       coalesce(sum(c.suspended), 0)::bigint AS suspended,
       coalesce(sum(c.waiting_children), 0)::bigint AS waiting_children,
       coalesce(sum(c.rate_limited), 0)::bigint AS rate_limited,
       coalesce(sum(c.blocked), 0)::bigint AS blocked, min(c.oldest_ms) AS oldest_ms
  FROM ff.lane_registry l
  LEFT JOIN ff.route r
    ON r.lane_id = l.lane_id
   AND (%(namespaces)s::text[] IS NULL OR r.namespace = ANY (%(namespaces)s::text[]))
  LEFT JOIN counted c USING (route_id)
 GROUP BY l.lane_id ORDER BY l.lane_id
"""


class LaneCount(msgspec.Struct, frozen=True, kw_only=True):
    """One lane: its state, and its executions that have not ended, by state."""

    lane_id: str
    lane_state: LaneState
    state_changed_at: datetime | None
    state_changed_by: str | None
    state_reason: str | None
    retention: timedelta | None
    """How long ended executions are kept; zero: for ever, None: the default."""
    registered_at: datetime
    waiting: int
    delayed: int
    active: int
    suspended: int
    waiting_children: int
    rate_limited: int
    blocked: int
    """Blocked by an operator, by a policy, or because no worker has the capabilities."""
    oldest_waiting_since: datetime | None
    left: int
    """All of these together: a draining lane is empty once none is left."""

    @property
    def version(self) -> str:
        """Changes with the state and the retention; controls take it as `expected_version`."""
        retention = self.retention
        return lane_version(
            self.lane_state,
            state_changed_at_ms=(
                None if self.state_changed_at is None else epoch_ms(self.state_changed_at)
            ),
            retention_ms=None if retention is None else retention // timedelta(milliseconds=1),
        )


class _Count(msgspec.Struct, frozen=True):
    lane_id: str
    lane_state: str
    state_changed_at_ms: int | None
    state_changed_by: str | None
    state_reason: str | None
    retention_ms: int | None
    registered_at_ms: int
    waiting: int
    delayed: int
    active: int
    suspended: int
    waiting_children: int
    rate_limited: int
    blocked: int
    oldest_ms: int | None


async def count_by_lane(
    conn: Connection, *, namespaces: Sequence[str] | None = None
) -> list[LaneCount]:
    """Every lane, with its executions that have not ended by state; those of the namespaces."""
    rows = await fetch_all(conn, COUNT_BY_LANE, _Count, namespaces=namespaces)
    return [
        LaneCount(
            lane_id=row.lane_id,
            lane_state=LaneState(row.lane_state),
            state_changed_at=instant(row.state_changed_at_ms),
            state_changed_by=row.state_changed_by,
            state_reason=row.state_reason,
            retention=(
                None if row.retention_ms is None else timedelta(milliseconds=row.retention_ms)
            ),
            registered_at=instant(row.registered_at_ms),
            waiting=row.waiting,
            delayed=row.delayed,
            active=row.active,
            suspended=row.suspended,
            waiting_children=row.waiting_children,
            rate_limited=row.rate_limited,
            blocked=row.blocked,
            oldest_waiting_since=instant(row.oldest_ms),
            left=row.waiting
            + row.delayed
            + row.active
            + row.suspended
            + row.waiting_children
            + row.rate_limited
            + row.blocked,
        )
        for row in rows
    ]
