"""A schedule is fired once, now, beside its instants."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.engine.schedules.add_latest import add_latest
from flowfabric.engine.schedules.open_executions import read_open_executions
from flowfabric.engine.schedules.overlap import OpenExecution, OverlapDecision, decide_overlap
from flowfabric.engine.schedules.plan_fires import PlannedFire, mint_execution
from flowfabric.engine.schedules.record_fires import fire_order, record_fires
from flowfabric.engine.schedules.schedule import lock_schedule, schedule_key
from flowfabric.ids import ExecutionId, new_uuid
from flowfabric.states import OperatorEventType, ScheduleOutcome, ScheduleOverlap

_AT_ONCE: Final = OverlapDecision()

FIND_TRIGGER: Final[LiteralString] = """
-- schedules.trigger_schedule
SELECT outcome, execution_partition, execution_id, reason FROM ff.schedule_fire
 WHERE (partition_key, namespace, name) = (%(partition_key)s, %(namespace)s, %(name)s)
   AND trigger_id = %(trigger_id)s
"""


class Triggered(msgspec.Struct, frozen=True, kw_only=True):
    """What a trigger did: `triggered` with the execution, or `skipped` with the reason."""

    outcome: ScheduleOutcome
    execution_id: ExecutionId | None
    reason: str | None = None


class _Recorded(msgspec.Struct, frozen=True):
    outcome: str
    execution_partition: int | None
    execution_id: UUID | None
    reason: str | None

    def answer(self) -> Triggered:
        made = None
        if self.execution_id is not None and self.execution_partition is not None:
            made = ExecutionId(self.execution_partition, self.execution_id)
        outcome = ScheduleOutcome(self.outcome)
        return Triggered(outcome=outcome, execution_id=made, reason=self.reason)


async def trigger_schedule(
    conn: Connection,
    name: str,
    *,
    namespace: str = "default",
    force: bool = False,
    trigger_id: UUID | None = None,
    reason: str | None = None,
    actor: str = DEFAULT_ACTOR,
    partitions: int = 256,
) -> Triggered:
    """An execution of the schedule exists now, whatever its state; needs a transaction.

    While an earlier one has not ended `overlap` decides, unless `force`. The same `trigger_id`
    again gives the first answer. Raises `NotFound`, and `LaneNotAccepting`.
    """
    check_actor(actor)
    schedule = await lock_schedule(conn, namespace, name, partitions=partitions)
    if trigger_id is not None:
        key = schedule_key(namespace, name, partitions)
        done = await fetch_maybe(conn, FIND_TRIGGER, _Recorded, trigger_id=trigger_id, **key)
        if done is not None:
            return done.answer()
    running = await read_open_executions(conn, schedule.latest)
    decision = decide_overlap(ScheduleOverlap(schedule.overlap), running)
    if force:
        decision = _AT_ONCE
    trigger = trigger_id or new_uuid()
    minted = mint_execution(namespace, name, schedule.now_ms, trigger, partitions=partitions)
    fire = PlannedFire(
        fire_at_ms=schedule.now_ms,
        outcome=ScheduleOutcome.TRIGGERED if decision.fires else ScheduleOutcome.SKIPPED,
        execution_id=minted if decision.fires else None,
        held=decision.held,
        supersedes=decision.supersedes,
        reason=decision.reason,
    )
    order = fire_order(schedule, fire, trigger_id=trigger)
    [made] = await record_fires(conn, [order], partitions=partitions)
    if made is not None:
        still = [] if decision.supersedes else running
        await add_latest(conn, schedule, [made], [*still, OpenExecution(made, decision.held)])
    await operator_event(
        conn,
        OperatorEventType.SCHEDULE_TRIGGERED,
        actor=actor,
        reason=reason,
        namespace=namespace,
        schedule=name,
        outcome=fire.outcome,
        execution_id=None if made is None else str(made),
        force=force,
    )
    return Triggered(outcome=fire.outcome, execution_id=made, reason=decision.reason)
