"""A schedule that two operations meet over: who fires it, changes it, and what it fired before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.block import block
from flowfabric.engine.schedules.add_latest import add_latest
from flowfabric.engine.schedules.fire_schedules import fire_schedules
from flowfabric.engine.schedules.overlap import OpenExecution
from flowfabric.engine.schedules.release_queued import release_queued
from flowfabric.engine.schedules.schedule import lock_schedule
from flowfabric.ids import ExecutionId
from flowfabric.states import BlockingReason, EligibilityState, ScheduleOverlap
from flowfabric.testing import Clock
from tests import given
from tests.engine.schedules.stored import define
from tests.proofs.interleave.operations import (
    CLAIM,
    Operation,
    cancel_execution,
    complete,
    swept,
)
from tests.proofs.interleave.scene import Scene
from tests.proofs.interleave.situations import Situation, leased

NAME = "hourly"
BEGIN = datetime(2027, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)


async def _due(engine: Engine, clock: Clock, overlap: ScheduleOverlap) -> None:
    """One instant of the schedule is due."""
    await clock.set(BEGIN)
    await engine.create_schedule(define(NAME, overlap=overlap))
    await clock.set(BEGIN + HOUR)


async def _fired(engine: Engine, *executions: ExecutionId, held: int = 0) -> None:
    """These are its last executions; so many of them, the last, wait for their turn."""
    opened = [
        OpenExecution(each, number >= len(executions) - held)
        for number, each in enumerate(executions)
    ]
    async with engine.pool.connection() as conn, conn.transaction():
        schedule = await lock_schedule(conn, "default", NAME, partitions=engine.partitions)
        await add_latest(conn, schedule, executions, opened)
        waiting = [each.execution_id for each in opened if each.held]
        await block(
            conn,
            waiting,
            eligibility=EligibilityState.BLOCKED_BY_QUOTA,
            reason=BlockingReason.WAITING_FOR_QUOTA,
        )


async def schedule_due(engine: Engine, clock: Clock, scene: Scene) -> None:
    """The schedule is due, and has fired nothing yet; x has nothing to do with it."""
    scene.id("x")
    await _due(engine, clock, ScheduleOverlap.SKIP)


async def schedule_running(engine: Engine, clock: Clock, scene: Scene) -> None:
    """The schedule is due; x, which it fired before, runs."""
    await _due(engine, clock, ScheduleOverlap.SKIP)
    await leased(engine, scene)
    await _fired(engine, scene.id("x"))


async def schedule_superseding(engine: Engine, clock: Clock, scene: Scene) -> None:
    """The same, but what fires it cancels x."""
    await _due(engine, clock, ScheduleOverlap.CANCEL_RUNNING)
    await leased(engine, scene)
    await _fired(engine, scene.id("x"))


async def schedule_queueing(engine: Engine, clock: Clock, scene: Scene) -> None:
    """The schedule is due; x, which it fired before, has ended, and it is the turn of y."""
    await _due(engine, clock, ScheduleOverlap.QUEUE_ALL)
    await leased(engine, scene)
    await engine.create_execution([given.new(execution_id=scene.id("y"))])
    await _fired(engine, scene.id("x"), scene.id("y"), held=1)
    await engine.cancel_execution(scene.id("x"), reason="over")


SCHEDULE_SITUATIONS = tuple(
    Situation(build.__name__, build)
    for build in (schedule_due, schedule_running, schedule_superseding, schedule_queueing)
)

SCHEDULES = (
    CLAIM,
    complete("x"),
    cancel_execution("x"),
    swept("fire_schedules", fire_schedules),
    swept("release_queued", release_queued),
    Operation(
        "trigger_schedule",
        lambda engine, scene, side: engine.trigger_schedule(
            NAME, trigger_id=scene.uuid(6000 + side)
        ),
    ),
    Operation(
        "backfill_schedule",
        lambda engine, _, __: engine.backfill_schedule(NAME, BEGIN - HOUR, BEGIN),
    ),
    Operation(
        "pause_schedule",
        lambda engine, _, side: engine.pause_schedule(NAME, reason=f"side {side}"),
    ),
    Operation(
        "update_schedule",
        lambda engine, _, side: engine.update_schedule(define(NAME, catch_up=2 + side)),
    ),
    Operation("delete_schedule", lambda engine, _, __: engine.delete_schedule(NAME)),
)
