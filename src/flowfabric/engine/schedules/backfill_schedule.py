"""The instants of a past time are fired, where they were not."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.engine.schedules.add_latest import add_latest
from flowfabric.engine.schedules.open_executions import read_open_executions
from flowfabric.engine.schedules.overlap import OpenExecution
from flowfabric.engine.schedules.plan_fires import PlannedFire, mint_execution
from flowfabric.engine.schedules.record_fires import FireOrder, fire_order, record_fires
from flowfabric.engine.schedules.schedule import StoredSchedule, lock_schedule, schedule_key
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.instants import check_instant, epoch_ms
from flowfabric.schedules.next_after import next_instants
from flowfabric.states import OperatorEventType, ScheduleOutcome

MOST: Final = 10_000
_AT_ONCE: Final = 1000

FIRED_BETWEEN: Final[LiteralString] = """
-- schedules.backfill_schedule
SELECT fire_at_ms FROM ff.schedule_fire
 WHERE (partition_key, namespace, name) = (%(partition_key)s, %(namespace)s, %(name)s)
   AND fire_at_ms >= %(start_ms)s AND fire_at_ms < %(end_ms)s
   AND outcome IN ('fired', 'backfilled')
"""


class Backfilled(msgspec.Struct, frozen=True, kw_only=True):
    """The executions that were created, in the order of their instants."""

    executions: list[ExecutionId]
    already_fired: int
    """How many instants had been fired before."""


class _At(msgspec.Struct, frozen=True):
    fire_at_ms: int


async def backfill_schedule(
    conn: Connection,
    name: str,
    start: datetime,
    end: datetime,
    *,
    namespace: str = "default",
    reason: str | None = None,
    actor: str = DEFAULT_ACTOR,
    partitions: int = 256,
) -> Backfilled:
    """Every instant from `start` until before `end` has been fired; needs a transaction.

    The executions are created at once, the oldest instant first, whatever `overlap` says; `runs`
    does not count them. Repeated, it fires nothing more. Raises `NotFound`, `LaneNotAccepting`, and
    `ValidationError` for an `end` before `start` or in the future, and for more than 10,000
    instants.
    """
    check_actor(actor)
    start_ms = epoch_ms(check_instant(start, field="start"))
    end_ms = epoch_ms(check_instant(end, field="end"))
    if end_ms < start_ms:
        raise invalid_input(
            "end", end.isoformat(), f"must not be before start, {start.isoformat()}"
        )
    schedule = await lock_schedule(conn, namespace, name, partitions=partitions)
    if end_ms > schedule.now_ms:
        raise invalid_input("end", end.isoformat(), "must not be in the future")
    instants = next_instants(schedule.spec, start_ms - 1, MOST + 1, until_ms=end_ms - 1)
    if len(instants) > MOST:
        why = f"has more than {MOST} instants until {end.isoformat()}"
        raise invalid_input("start", start.isoformat(), why)
    key = schedule_key(namespace, name, partitions)
    rows = await fetch_all(conn, FIRED_BETWEEN, _At, start_ms=start_ms, end_ms=end_ms, **key)
    fired = {row.fire_at_ms for row in rows}
    orders = [_order(schedule, at, partitions=partitions) for at in instants if at not in fired]
    made: list[ExecutionId] = []
    for first in range(0, len(orders), _AT_ONCE):
        batch = orders[first : first + _AT_ONCE]
        recorded = await record_fires(conn, batch, partitions=partitions)
        made += [each for each in recorded if each is not None]
    if made:
        running = await read_open_executions(conn, schedule.latest)
        opened = [*running, *(OpenExecution(each, False) for each in made)]
        await add_latest(conn, schedule, made, opened, fired=len(made))
    await operator_event(
        conn,
        OperatorEventType.SCHEDULE_BACKFILLED,
        actor=actor,
        reason=reason,
        namespace=namespace,
        schedule=name,
        start=start.isoformat(),
        end=end.isoformat(),
        executions=len(made),
    )
    return Backfilled(executions=made, already_fired=len(instants) - len(orders))


def _order(schedule: StoredSchedule, at_ms: int, *, partitions: int) -> FireOrder:
    minted = mint_execution(schedule.namespace, schedule.name, at_ms, partitions=partitions)
    fire = PlannedFire(fire_at_ms=at_ms, outcome=ScheduleOutcome.BACKFILLED, execution_id=minted)
    return fire_order(schedule, fire)
