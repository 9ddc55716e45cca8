"""Limits that two operations meet over: claims, ends, cancels, and wake-ups of the next one."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.quotas.unblock_due_keys import unblock_due_keys
from flowfabric.engine.quotas.unblock_held_keys import unblock_held_keys
from flowfabric.limits import QuotaLimits, quota_key_id, quota_policy_id
from flowfabric.testing import Clock
from tests import given
from tests.proofs.interleave.operations import (
    CLAIM,
    LANE,
    Operation,
    cancel_execution,
    holder,
    swept,
)
from tests.proofs.interleave.scene import Scene
from tests.proofs.interleave.situations import WORKER, Situation

NAME: Final = "per-customer"
LIMIT: Final = quota_policy_id("default", NAME)
KEYS: Final = tuple(quota_key_id(LIMIT, each) for each in ("c", "d"))


async def _limit(engine: Engine, cap: int = 0, *, rate: int = 0) -> None:
    limits = QuotaLimits(
        max_concurrent=cap, max_requests_per_window=rate, window_seconds=60 if rate else 0
    )
    await engine.create_quota_policy(NAME, limits)


async def _queued(engine: Engine, clock: Clock, scene: Scene, *names: str, key: str = "c") -> None:
    """Each by a call of its own, so that all of them are queued."""
    for name in names:
        await engine.create_execution(
            [given.new(execution_id=scene.id(name), quota_policy_id=LIMIT, limit_key=key)]
        )
        await clock.advance(0.01)


async def _claimed(engine: Engine, scene: Scene, name: str, ttl: float = 3600) -> None:
    [claimed] = await engine.claim(WORKER, ttl=ttl)
    assert claimed.lease.execution_id == scene.id(name)
    scene.leases[name] = claimed.lease


async def limited_queued(engine: Engine, clock: Clock, scene: Scene) -> None:
    """One may run; x and y are queued, and v and w of another key."""
    await _limit(engine, 1)
    await _queued(engine, clock, scene, "x", "y")
    await _queued(engine, clock, scene, "v", "w", key="d")


async def limited_running(engine: Engine, clock: Clock, scene: Scene) -> None:
    """One may run, and x does; y is held back, and z is queued."""
    await _limit(engine, 1)
    await _queued(engine, clock, scene, "x")
    await _claimed(engine, scene, "x")
    await _queued(engine, clock, scene, "y")
    assert await engine.claim(WORKER, ttl=30) == []
    await _queued(engine, clock, scene, "z")


async def limited_held(engine: Engine, clock: Clock, scene: Scene) -> None:
    """Three may run, and x does, whose lease has run out; y and z are held back, u is queued."""
    await _limit(engine, 3)
    await _queued(engine, clock, scene, "x", "w", "v")
    await _claimed(engine, scene, "x", ttl=1)
    await _claimed(engine, scene, "w")
    await _claimed(engine, scene, "v")
    await _queued(engine, clock, scene, "y", "z")
    assert await engine.claim(WORKER, ttl=30) == []
    for name in ("w", "v"):
        await engine.cancel_execution(scene.id(name), reason="over")
    await _queued(engine, clock, scene, "u")
    await clock.advance(2)


async def limited_starts(engine: Engine, clock: Clock, scene: Scene) -> None:
    """Two start in a minute, which has passed since x did, and for w is over in a millisecond."""
    await _limit(engine, rate=2)
    await _queued(engine, clock, scene, "x", "w")
    await _claimed(engine, scene, "x")
    await clock.advance(0.001)
    await _claimed(engine, scene, "w")
    await _queued(engine, clock, scene, "y", "z")
    assert await engine.claim(WORKER, ttl=30) == []
    await _queued(engine, clock, scene, "v", "u")
    await clock.advance(59.959)


async def limited_crowd(engine: Engine, clock: Clock, scene: Scene) -> None:
    """Three of a key may run; x and y are queued before many of another key, z and w after them."""
    await _limit(engine, 3)
    await _queued(engine, clock, scene, "x", "y")
    await _queued(engine, clock, scene, *(f"other {n}" for n in range(5)), key="d")
    await _queued(engine, clock, scene, "z", "w")


LIMIT_SITUATIONS: Final = tuple(
    Situation(build.__name__, build)
    for build in (limited_queued, limited_running, limited_held, limited_starts, limited_crowd)
)


async def _unblock(engine: Engine, _scene: Scene, _side: int) -> Any:
    return await engine.unblock_keys(KEYS)


async def _complete(engine: Engine, scene: Scene, _side: int) -> Any:
    answer = await engine.complete([Completion(scene.leases["x"])])
    await engine.unblock_keys(KEYS)
    return answer


# A claim that waited for a key may queue one more of it than may start, which the next claim holds
# back. So it is asked what a limit promises, not which order it equals.
LIMITS: Final = (
    msgspec.structs.replace(CLAIM, atomic=False),
    Operation(
        "claim seven",
        lambda engine, _, side: engine.claim(
            Claimant(worker_id="w", worker_instance_id=f"w-{side}", lanes=(LANE,)), ttl=30, limit=7
        ),
        passes_over=True,
        atomic=False,
    ),
    Operation("unblock_keys", _unblock, passes_over=True, counts_as="unblock"),
    swept("unblock_due_keys", unblock_due_keys, counts_rows=False, counts_as="unblock"),
    swept("unblock_held_keys", unblock_held_keys, counts_as="unblock"),
    holder("complete x and unblock", "x", _complete, atomic=False),
    cancel_execution("x"),
    cancel_execution("y"),
    swept("expire_leases", expire_leases),
)
