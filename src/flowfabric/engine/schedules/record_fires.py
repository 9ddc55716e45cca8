"""The executions of instants are created, those that they supersede end, and the ledger has all."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.at_commit import at_commit
from flowfabric.counters import SCHEDULE_FIRES, SCHEDULE_LATENESS
from flowfabric.db.rows import Connection, execute
from flowfabric.engine.lifecycle.block import block
from flowfabric.engine.lifecycle.create_execution import NewExecution, create_execution
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.engine.schedules.definition import INSTANT_TAG, NAME_TAG
from flowfabric.engine.schedules.plan_fires import NO_TRIGGER, PlannedFire, fire_key, instant_text
from flowfabric.engine.schedules.schedule import StoredSchedule, read_policy
from flowfabric.errors import IdempotencyConflict
from flowfabric.ids import ExecutionId
from flowfabric.schedules.next_after import jitter_of
from flowfabric.states import (
    BlockingReason,
    EligibilityState,
    ScheduleOutcome,
    TerminalOutcome,
)
from flowfabric.tags import read_tags

CREATOR: Final = "schedule"
"""One for all: executions that have it and their task in common are created as one shape."""
SUPERSEDED: Final = "superseded_by_schedule"
_WAITS: Final = "an earlier execution of its schedule has not ended"

# A row of an instant that was not fired is replaced when the instant is fired after all.
RECORD_FIRES: Final[LiteralString] = """
-- schedules.record_fires
INSERT INTO ff.schedule_fire AS f (
       partition_key, namespace, name, fire_at_ms, trigger_id, outcome, execution_partition,
       execution_id, recorded_at_ms, reason)
SELECT g.partition_key, g.namespace, g.name, g.fire_at_ms, g.trigger_id, g.outcome,
       g.execution_partition, g.execution_id, ff.now_ms(), g.reason
  FROM unnest(%(partition_key)s::smallint[], %(namespace)s::text[], %(name)s::text[],
              %(fire_at_ms)s::bigint[], %(trigger_id)s::uuid[], %(outcome)s::text[],
              %(execution_partition)s::smallint[], %(execution_id)s::uuid[], %(reason)s::text[])
       AS g (partition_key, namespace, name, fire_at_ms, trigger_id, outcome,
             execution_partition, execution_id, reason)
    ON CONFLICT (partition_key, namespace, name, fire_at_ms, trigger_id) DO UPDATE
   SET outcome = EXCLUDED.outcome, execution_partition = EXCLUDED.execution_partition,
       execution_id = EXCLUDED.execution_id, recorded_at_ms = EXCLUDED.recorded_at_ms,
       reason = EXCLUDED.reason
 WHERE f.execution_id IS NULL AND EXCLUDED.execution_id IS NOT NULL
"""


class FireOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One instant of a schedule, what becomes of it, and the execution to create."""

    schedule: StoredSchedule
    fire: PlannedFire
    execution: NewExecution | None
    trigger_id: UUID = NO_TRIGGER


def fire_order(
    schedule: StoredSchedule, fire: PlannedFire, *, trigger_id: UUID = NO_TRIGGER
) -> FireOrder:
    """What the instant needs to be recorded; raises `ValidationError` for stored values."""
    execution = None
    if fire.execution_id is not None:
        execution = _execution(schedule, fire, fire.execution_id, trigger_id)
    return FireOrder(schedule=schedule, fire=fire, execution=execution, trigger_id=trigger_id)


def _execution(
    schedule: StoredSchedule, fire: PlannedFire, execution_id: ExecutionId, trigger_id: UUID
) -> NewExecution:
    at_ms = fire.fire_at_ms
    jitter = 0
    if trigger_id == NO_TRIGGER:
        jitter = jitter_of(schedule.name, at_ms, schedule.jitter_ms)
    return NewExecution(
        execution_id=execution_id,
        execution_kind=schedule.execution_kind,
        lane_id=schedule.lane_id,
        namespace=schedule.namespace,
        input_payload=schedule.payload,
        payload_encoding=schedule.payload_encoding,
        priority=schedule.priority,
        creator_identity=CREATOR,
        idempotency_key=fire_key(schedule.name, at_ms, trigger_id),
        on_conflict="return",
        tags={
            **read_tags(schedule.tags),
            NAME_TAG: schedule.name,
            INSTANT_TAG: instant_text(at_ms),
        },
        required_capabilities=tuple(schedule.required_capabilities),
        policy=read_policy(schedule.policy),
        delay=timedelta(milliseconds=jitter) if jitter else None,
    )


async def record_fires(
    conn: Connection, orders: Sequence[FireOrder], *, partitions: int
) -> list[ExecutionId | None]:
    """What became of the instants is done and recorded; their executions, in the order given.

    Needs a transaction that holds the locks of their schedules. Raises `LaneNotAccepting`.
    """
    new = [order.execution for order in orders if order.execution is not None]
    answers = iter(await create_execution(conn, new, partitions=partitions, fresh=True))
    made = [None if order.execution is None else _id(next(answers)) for order in orders]
    superseded = {each for order in orders for each in order.fire.supersedes}
    if superseded:
        locked = await lock_executions(conn, sorted(superseded))
        await terminalize(
            conn, locked, outcome=TerminalOutcome.CANCELLED, reason=SUPERSEDED, by="schedule"
        )
    held = [
        each
        for order, each in zip(orders, made, strict=True)
        if each is not None and order.fire.held
    ]
    if held:
        await block(
            conn,
            held,
            eligibility=EligibilityState.BLOCKED_BY_QUOTA,
            reason=BlockingReason.WAITING_FOR_QUOTA,
            detail=_WAITS,
        )
    if orders:
        await execute(conn, RECORD_FIRES, **_columns(orders, made))
        at_commit(lambda: _count(orders))
    return made


def _count(orders: Sequence[FireOrder]) -> None:
    """Count what became of the instants, but for the missed ones: most of them have no order."""
    for order in orders:
        outcome = order.fire.outcome
        if outcome is not ScheduleOutcome.MISSED:
            SCHEDULE_FIRES.add(outcome.value)
        if outcome is ScheduleOutcome.FIRED:
            SCHEDULE_LATENESS.observe((order.schedule.now_ms - order.fire.fire_at_ms) / 1000)


def _id(answer: Any) -> ExecutionId:
    assert not isinstance(answer, IdempotencyConflict), "on_conflict is return"
    return answer.execution_id


def _columns(
    orders: Sequence[FireOrder], made: Sequence[ExecutionId | None]
) -> dict[str, list[Any]]:
    return {
        "partition_key": [order.schedule.partition_key for order in orders],
        "namespace": [order.schedule.namespace for order in orders],
        "name": [order.schedule.name for order in orders],
        "fire_at_ms": [order.fire.fire_at_ms for order in orders],
        "trigger_id": [order.trigger_id for order in orders],
        "outcome": [order.fire.outcome.value for order in orders],
        "execution_partition": [None if each is None else each.partition_key for each in made],
        "execution_id": [None if each is None else each.uuid for each in made],
        "reason": [order.fire.reason for order in orders],
    }
