"""Due instants of schedules are fired, each once, by any number of processes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final, LiteralString

import msgspec

from flowfabric.at_commit import at_commit
from flowfabric.counters import SCHEDULE_FIRES
from flowfabric.db.rows import Connection, fetch_all, fetch_maybe
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.schedules.open_executions import OPEN_OF_SCHEDULE, open_executions
from flowfabric.engine.schedules.plan_fires import DueSchedule, FirePlan, plan_fires
from flowfabric.engine.schedules.record_fires import FireOrder, fire_order, record_fires
from flowfabric.engine.schedules.schedule import SCHEDULE_COLUMNS, StoredSchedule, json_rows
from flowfabric.ids import ExecutionId, clean_text
from flowfabric.states import ScheduleOutcome, ScheduleOverlap, ScheduleState

log: Final = logging.getLogger("flowfabric.schedules")

MOST_INSTANTS: Final = 1000
"""A batch ends with the schedule that brings it to so many instants."""

SCHEDULES_DUE: Final[LiteralString] = """
-- schedules.schedules_due
SELECT next_fire_at_ms FROM ff.schedule
 WHERE state = 'active' AND next_fire_at_ms <= ff.now_ms()
 ORDER BY next_fire_at_ms LIMIT 1
"""

# No row is locked: instants are computed from what is read here, and ADVANCE changes a schedule
# only if it is still as it was.
READ_DUE: Final[LiteralString] = f"""
-- schedules.fire_schedules: what is due
SELECT {SCHEDULE_COLUMNS}, {OPEN_OF_SCHEDULE},
       (SELECT l.lane_state FROM ff.lane_registry l
         WHERE l.lane_id = s.lane_id AND l.lane_state IN ('draining', 'disabled')) AS closed_lane,
       s.limit_name IS NOT NULL AND NOT EXISTS (
           SELECT FROM ff.quota_policy p
            WHERE (p.namespace, p.name) = (s.namespace, s.limit_name)) AS lost_limit,
       ARRAY(SELECT f.fire_at_ms FROM ff.schedule_fire f
              WHERE (f.partition_key, f.namespace, f.name) = (s.partition_key, s.namespace, s.name)
                AND f.fire_at_ms >= s.next_fire_at_ms AND f.outcome = 'backfilled') AS backfilled,
       (SELECT num_flow_partitions FROM ff.partition_config WHERE singleton) AS partitions
  FROM ff.schedule s
 WHERE s.state = 'active' AND s.next_fire_at_ms <= ff.now_ms()
 ORDER BY s.next_fire_at_ms LIMIT %(limit)s
"""

ADVANCE: Final[LiteralString] = """
-- schedules.fire_schedules
WITH planned AS (
    SELECT * FROM jsonb_to_recordset(%(rows)s::text::jsonb) AS planned (
           partition_key smallint, namespace text, name text, revision bigint, seen_ms bigint,
           next_ms bigint, fired_at_ms bigint, fired bigint, skipped bigint, missed bigint,
           runs_left integer, state text, state_reason text, latest_partitions smallint[],
           latest_ids uuid[], queues boolean)
), won AS (           -- those that are as they were; another process fires the others
    SELECT planned.* FROM planned CROSS JOIN LATERAL (  -- by key, whatever the statistics say
           SELECT s.state, s.next_fire_at_ms, s.revision FROM ff.schedule s
            WHERE (s.partition_key, s.namespace, s.name)
                = (planned.partition_key, planned.namespace, planned.name)
           OFFSET 0 FOR NO KEY UPDATE SKIP LOCKED) AS seen
     WHERE seen.state = 'active' AND seen.next_fire_at_ms = planned.seen_ms
       AND seen.revision = planned.revision
)
UPDATE ff.schedule s
   SET next_fire_at_ms = p.next_ms, last_fire_at_ms = coalesce(p.fired_at_ms, s.last_fire_at_ms),
       fired = s.fired + p.fired, skipped = s.skipped + p.skipped, missed = s.missed + p.missed,
       runs_left = p.runs_left, state = p.state,
       state_reason = coalesce(p.state_reason, s.state_reason),
       state_changed_at_ms = CASE WHEN p.state = 'active' THEN s.state_changed_at_ms
                                  ELSE ff.now_ms() END,
       latest_partitions = p.latest_partitions, latest_ids = p.latest_ids,
       queued = s.queued OR p.queues, revision = s.revision + 1
  FROM won p
 WHERE (s.partition_key, s.namespace, s.name) = (p.partition_key, p.namespace, p.name)
RETURNING s.partition_key, s.namespace, s.name
"""


class _Due(StoredSchedule, frozen=True):
    """A schedule that is due."""

    open: list[str]
    closed_lane: str | None
    lost_limit: bool
    backfilled: list[int]
    partitions: int

    @property
    def key(self) -> tuple[int, str, str]:
        return (self.partition_key, self.namespace, self.name)

    @property
    def refusal(self) -> str | None:
        """Why no execution can be created now."""
        if self.closed_lane is not None:
            return f"lane {self.lane_id!r} is {self.closed_lane}"
        return f"limit {self.limit_name!r} does not exist" if self.lost_limit else None

    def plan(self) -> FirePlan:
        due = DueSchedule(
            name=self.name,
            namespace=self.namespace,
            spec=self.spec,
            first_ms=self.next_fire_at_ms or 0,
            overlap=ScheduleOverlap(self.overlap),
            catch_up=self.catch_up,
            catch_up_window_ms=self.catch_up_window_ms,
            until_ms=self.until_ms,
            runs_left=self.runs_left,
            refusal=self.refusal,
            backfilled=frozenset(self.backfilled),
            latest=self.latest,
            running=open_executions(self.open),
        )
        return plan_fires(due, self.now_ms, partitions=self.partitions)


class _Won(msgspec.Struct, frozen=True):
    """A schedule that this process fires."""

    partition_key: int
    namespace: str
    name: str


class _Planned(msgspec.Struct, frozen=True):
    """A schedule that is due, what it becomes, and what becomes of its instants."""

    due: _Due
    row: dict[str, Any]
    orders: list[FireOrder]

    @property
    def cancels(self) -> set[ExecutionId]:
        """The executions that run now and are superseded."""
        superseded = {each for order in self.orders for each in order.fire.supersedes}
        return superseded & set(self.due.latest)


class _At(msgspec.Struct, frozen=True):
    next_fire_at_ms: int


async def schedules_due(conn: Connection) -> bool:
    """Is an instant of a schedule due?"""
    return await fetch_maybe(conn, SCHEDULES_DUE, _At) is not None


async def fire_schedules(conn: Connection, limit: int) -> int:
    """The due instants of at most `limit` schedules are fired, the longest due first; how many.

    Needs a transaction: before its commit nothing is fired, after it everything. A schedule whose
    next instant cannot be computed is `broken`. Schedules that another process fires, or that were
    changed meanwhile, or that would cancel an execution that is in use, are passed over.
    """
    due = await fetch_all(conn, READ_DUE, _Due, limit=limit)
    planned = await _without_locked(conn, _planned(due))
    if not planned:
        return 0
    won = await fetch_all(conn, ADVANCE, _Won, rows=json_rows([each.row for each in planned]))
    by_key = {each.due.key: each for each in planned}
    fired = [by_key[each.partition_key, each.namespace, each.name] for each in won]
    orders = [order for each in fired for order in each.orders]
    await record_fires(conn, orders, partitions=due[0].partitions)
    if missed := sum(each.row["missed"] for each in fired):
        at_commit(lambda: SCHEDULE_FIRES.add(ScheduleOutcome.MISSED.value, count=missed))
    return len(won)


def _planned(due: Sequence[_Due]) -> list[_Planned]:
    """What becomes of each schedule; without the last ones if there are many instants."""
    planned: list[_Planned] = []
    instants = 0
    for each in due:
        if instants >= MOST_INSTANTS:
            break
        try:
            plan = each.plan()
            orders = [fire_order(each, fire) for fire in plan.fires]
        except Exception as error:  # whatever it is, the other schedules are fired
            log.warning("schedule %s in %s is broken: %s", each.name, each.namespace, error)
            planned.append(_Planned(each, _row(each, None, str(error) or type(error).__name__), []))
            continue
        planned.append(_Planned(each, _row(each, plan), orders))
        instants += len(orders) + plan.missed
    return planned


async def _without_locked(conn: Connection, planned: Sequence[_Planned]) -> list[_Planned]:
    """Those whose running executions can be cancelled; the others are fired by a later sweep.

    The executions that they supersede are locked. Nothing is waited for.
    """
    running = {each for schedule in planned for each in schedule.cancels}
    if not running:
        return list(planned)
    locked = set(await lock_executions(conn, sorted(running), pass_over_locked=True))
    return [each for each in planned if each.cancels <= locked]


def _row(due: _Due, plan: FirePlan | None, error: str | None = None) -> dict[str, Any]:
    """What the schedule becomes; without a plan it is broken."""
    state = ScheduleState.BROKEN
    if plan is not None:
        state = ScheduleState.FINISHED if plan.next_ms is None else ScheduleState.ACTIVE
    latest: Sequence[ExecutionId] = due.latest if plan is None else plan.latest
    fired = [] if plan is None else [fire for fire in plan.fires if fire.execution_id is not None]
    return {
        "partition_key": due.partition_key,
        "namespace": due.namespace,
        "name": due.name,
        "revision": due.revision,
        "seen_ms": due.next_fire_at_ms,
        "next_ms": None if plan is None else plan.next_ms,
        "fired_at_ms": fired[-1].fire_at_ms if fired else None,
        "fired": len(fired),
        "skipped": 0 if plan is None else plan.count(ScheduleOutcome.SKIPPED),
        "missed": 0 if plan is None else plan.missed,
        "runs_left": due.runs_left if plan is None else plan.runs_left,
        "state": state.value,
        "state_reason": None if error is None else clean_text(error),
        "latest_partitions": [each.partition_key for each in latest],
        "latest_ids": [str(each.uuid) for each in latest],
        "queues": any(fire.held for fire in fired),
    }
