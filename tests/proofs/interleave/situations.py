"""Where one execution can stand when two operations meet over it; each made by operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.policy import ExecutionPolicy, RetryPolicy, TimeoutPolicy
from flowfabric.states import TerminalOutcome
from flowfabric.testing import Clock
from tests import given
from tests.proofs.interleave.scene import Scene

Build: TypeAlias = Callable[[Engine, Clock, Scene], Awaitable[None]]

WORKER = Claimant(worker_id="w", worker_instance_id="w-held", lanes=("default",))


class Situation(msgspec.Struct, frozen=True):
    """How a scene is set."""

    name: str
    build: Build


async def created(engine: Engine, scene: Scene, **fields: Any) -> None:
    fields.setdefault("policy", ExecutionPolicy(retry_policy=RetryPolicy(max_retries=3)))
    await engine.create_execution([given.new(execution_id=scene.id("x"), **fields)])


async def leased(engine: Engine, scene: Scene, *, ttl: float = 3600, **fields: Any) -> None:
    await created(engine, scene, **fields)
    [claimed] = await engine.claim(WORKER, ttl=ttl)
    scene.leases["x"] = claimed.lease


async def empty(_engine: Engine, _clock: Clock, scene: Scene) -> None:
    scene.id("x")


async def waiting(engine: Engine, _clock: Clock, scene: Scene) -> None:
    await created(engine, scene)


async def held(engine: Engine, _clock: Clock, scene: Scene) -> None:
    await leased(engine, scene)


async def lapsed(engine: Engine, clock: Clock, scene: Scene) -> None:
    await leased(engine, scene, ttl=1)
    await clock.advance(2)


async def lapsed_for_good(engine: Engine, clock: Clock, scene: Scene) -> None:
    await leased(engine, scene, ttl=1, policy=ExecutionPolicy(max_reclaim_count=0))
    await clock.advance(2)


async def overdue(engine: Engine, clock: Clock, scene: Scene) -> None:
    """Held, by a lease that is good; but attempt and execution are over their time."""
    policy = ExecutionPolicy(
        retry_policy=RetryPolicy(), timeout_policy=TimeoutPolicy(attempt_timeout=1)
    )
    await leased(engine, scene, policy=policy, deadline=1)
    await clock.advance(2)


async def all_over(engine: Engine, clock: Clock, scene: Scene) -> None:
    """Lease, attempt and execution are over their time."""
    policy = ExecutionPolicy(timeout_policy=TimeoutPolicy(attempt_timeout=1))
    await leased(engine, scene, ttl=1, policy=policy, deadline=1)
    await clock.advance(2)


async def expiring(engine: Engine, clock: Clock, scene: Scene) -> None:
    await created(engine, scene, deadline=1)
    await clock.advance(2)


async def due(engine: Engine, clock: Clock, scene: Scene) -> None:
    await created(engine, scene, delay=1)
    await clock.advance(2)


async def interrupted(engine: Engine, clock: Clock, scene: Scene) -> None:
    """It rested, under a lease that its holder still remembers, and its time has come."""
    await held(engine, clock, scene)
    await engine.fail([Failure(lease=scene.leases["x"], reason="boom")])
    await clock.advance(60)


async def blocked(engine: Engine, _clock: Clock, scene: Scene) -> None:
    await created(engine, scene)
    await engine.block_execution_for_admission(scene.id("x"), "paused_by_operator")


async def completed(engine: Engine, clock: Clock, scene: Scene) -> None:
    await held(engine, clock, scene)
    await engine.complete([Completion(scene.leases["x"], b"before")])


async def failed(engine: Engine, clock: Clock, scene: Scene) -> None:
    await held(engine, clock, scene)
    failure = Failure(lease=scene.leases["x"], reason="boom", category="permanent")
    await engine.fail([failure])


async def cancelled(engine: Engine, _clock: Clock, scene: Scene) -> None:
    await created(engine, scene)
    await engine.cancel_execution(scene.id("x"), reason="before")


async def skipped(engine: Engine, _clock: Clock, scene: Scene) -> None:
    await created(engine, scene)
    async with engine.pool.connection() as conn:
        await terminalize(conn, [scene.id("x")], outcome=TerminalOutcome.SKIPPED)


async def promised(engine: Engine, _clock: Clock, scene: Scene) -> None:
    """Worker w0 was promised it."""
    await created(engine, scene)
    await engine.issue_claim_grant(
        scene.id("x"), lane_id="default", worker_id="w", worker_instance_id="w-0"
    )


SITUATIONS = tuple(
    Situation(build.__name__, build)
    for build in (
        empty,
        waiting,
        held,
        lapsed,
        lapsed_for_good,
        overdue,
        all_over,
        expiring,
        due,
        interrupted,
        blocked,
        completed,
        failed,
        cancelled,
        skipped,
        promised,
    )
)
