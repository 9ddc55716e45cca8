"""What an attempt that waits meets: suspensions, signals, timeouts, the journal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from flowfabric.conditions import AnyCondition, Single
from flowfabric.engine.engine import Engine
from flowfabric.engine.journal.delay_with_entries import Sleeper
from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.engine.lifecycle.delay import DelayRequest
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.suspensions.expire_pending_waitpoints import expire_pending_waitpoints
from flowfabric.engine.suspensions.expire_suspensions import expire_suspensions
from flowfabric.engine.suspensions.send_signal import NewSignal
from flowfabric.engine.suspensions.suspension import Suspended, SuspendRequest, UsePending
from flowfabric.states import JournalKind, JournalState, TimeoutBehavior
from flowfabric.testing import Clock
from tests.proofs.interleave.operations import (
    CLAIM,
    Operation,
    cancel_execution,
    complete,
    holder,
    release,
    replay,
    swept,
)
from tests.proofs.interleave.scene import Scene
from tests.proofs.interleave.situations import Situation, leased

NAME = "go"
KEY = "door"
DOOR = 3000
"""The number of the id of the waitpoint."""
THEN = datetime(2026, 1, 1, tzinfo=UTC)
PATIENCE = timedelta(seconds=5)


def by_name(scene: Scene, side: int = 0, **fields: Any) -> SuspendRequest:
    """As a handler that waits for a signal by name."""
    return SuspendRequest(
        lease=scene.leases["x"],
        suspension_id=scene.uuid(4000 + side),
        keeps_waitpoints=True,
        awaits_signals=(NAME,),
        signals_read=0,
        timeout_behavior=TimeoutBehavior.AUTO_RESUME,
        **fields,
    )


def by_door(scene: Scene, side: int = 0, *, keeps: bool = False, **fields: Any) -> SuspendRequest:
    """Until somebody signals the waitpoint."""
    return SuspendRequest(
        lease=scene.leases["x"],
        suspension_id=scene.uuid(4000 + side),
        bindings=(UsePending(waitpoint_id=scene.uuid(DOOR)),),
        condition=AnyCondition(members=(Single(KEY),)) if keeps else Single(KEY),
        keeps_waitpoints=keeps,
        **fields,
    )


def entry(scene: Scene, seq: int, state: JournalState, value: bytes) -> EntryWrite:
    return EntryWrite(
        lease=scene.leases["x"],
        seq=seq,
        kind=JournalKind.STEP,
        state=state,
        name="count",
        occurrence=seq,
        started_at=THEN,
        encoding="json",
        value=value,
    )


def sleeper(scene: Scene, side: int) -> Sleeper:
    """As a handler that sleeps: the entry is written with the delay."""
    return Sleeper(
        request=DelayRequest(lease=scene.leases["x"], delay=60, detail="sleeps"),
        entries=(entry(scene, 4 + side, JournalState.OPEN, b"3"),),
    )


# Situations.


async def with_a_door(engine: Engine, _clock: Clock, scene: Scene) -> None:
    """x runs, has recorded a step and has made a waitpoint."""
    await leased(engine, scene)
    await engine.record_entries([entry(scene, 1, JournalState.DONE, b"1")])
    waitpoint = await engine.create_waitpoint(
        scene.leases["x"], KEY, expires_in=3600, waitpoint_id=scene.uuid(DOOR)
    )
    scene.tokens["x"] = waitpoint.token


async def with_a_door_lapsed(engine: Engine, clock: Clock, scene: Scene) -> None:
    """The same, but its lease has run out, and the waitpoint has expired."""
    await leased(engine, scene, ttl=1)
    await engine.record_entries([entry(scene, 1, JournalState.DONE, b"1")])
    waitpoint = await engine.create_waitpoint(
        scene.leases["x"], KEY, expires_in=1, waitpoint_id=scene.uuid(DOOR)
    )
    scene.tokens["x"] = waitpoint.token
    await clock.advance(2)


async def waits_by_name(engine: Engine, clock: Clock, scene: Scene) -> None:
    """x is suspended until a signal of a name, and its timeout has passed."""
    await with_a_door(engine, clock, scene)
    await _suspended(engine, clock, by_name(scene, timeout_at=await _soon(clock)))


async def waits_at_door(engine: Engine, clock: Clock, scene: Scene) -> None:
    """x is suspended until its waitpoint is signalled, and past its timeout it fails."""
    await with_a_door(engine, clock, scene)
    until = await _soon(clock)
    await _suspended(engine, clock, by_door(scene, timeout_at=until))


async def waits_at_door_in_time(engine: Engine, clock: Clock, scene: Scene) -> None:
    """The same without a timeout, as a handler that may wait there again."""
    await with_a_door(engine, clock, scene)
    await _suspended(engine, clock, by_door(scene, keeps=True))


async def waits_either_way(engine: Engine, clock: Clock, scene: Scene) -> None:
    """x is suspended until a signal of a name or on its waitpoint, which then takes no more."""
    await with_a_door(engine, clock, scene)
    await _suspended(engine, clock, by_door(scene, awaits_signals=(NAME,), signals_read=0))


async def _soon(clock: Clock) -> datetime:
    return await clock.now() + PATIENCE


async def _suspended(engine: Engine, clock: Clock, request: SuspendRequest) -> None:
    [answer] = await engine.suspend([request])
    assert isinstance(answer, Suspended), answer
    await clock.advance(2 * PATIENCE.total_seconds())


WAIT_SITUATIONS = tuple(
    Situation(build.__name__, build)
    for build in (
        with_a_door,
        with_a_door_lapsed,
        waits_by_name,
        waits_at_door,
        waits_at_door_in_time,
        waits_either_way,
    )
)

LOOK = Operation("look_at_waits x", lambda engine, scene, _: engine.look_at_waits([scene.id("x")]))
"""What a worker does once a second for handlers that wait beside a step."""

WAITS = (
    CLAIM,
    LOOK,
    holder(
        "suspend x by name", "x", lambda engine, scene, side: engine.suspend([by_name(scene, side)])
    ),
    holder(
        "suspend x at door", "x", lambda engine, scene, side: engine.suspend([by_door(scene, side)])
    ),
    holder(
        "suspend x at door as a handler",
        "x",
        lambda engine, scene, side: engine.suspend([by_door(scene, side, keeps=True)]),
    ),
    holder(
        "delay_with_entries x",
        "x",
        lambda engine, scene, side: engine.delay_with_entries([sleeper(scene, side)]),
    ),
    holder(
        "record_entries x",
        "x",
        lambda engine, scene, side: engine.record_entries(
            [
                entry(scene, 1, JournalState.DONE, b"%d" % (10 + side)),
                entry(scene, 2 + side, JournalState.DONE, b"2"),
            ]
        ),
    ),
    holder(
        "restart_execution x",
        "x",
        lambda engine, scene, side: engine.restart_execution(
            scene.leases["x"], payload=b"%d" % side, payload_encoding="json"
        ),
    ),
    complete("x"),
    release("x"),
    Operation(
        "send_signal x",
        lambda engine, scene, side: engine.send_signal(
            NewSignal(
                execution_id=scene.id("x"),
                signal_name=NAME,
                payload=b"%d" % side,
                signal_id=scene.uuid(5000 + side),
            )
        ),
    ),
    Operation(
        "deliver_signal x",
        lambda engine, scene, side: engine.deliver_signal(
            scene.id("x"),
            scene.uuid(DOOR),
            scene.tokens["x"],
            f"side {side}",
            signal_id=scene.uuid(5000 + side),
            idempotency_key="once",
        ),
        ("x", "token x"),
    ),
    Operation(
        "close_waitpoint x",
        lambda engine, scene, side: engine.close_waitpoint(
            scene.id("x"), scene.uuid(DOOR), reason=f"side {side}"
        ),
        ("x", "token x"),
    ),
    swept("expire_suspensions", expire_suspensions),
    swept("expire_pending_waitpoints", expire_pending_waitpoints),
    swept("expire_leases", expire_leases),
    Operation(
        "resume_execution x",
        lambda engine, scene, side: engine.resume_execution(scene.id("x"), reason=f"side {side}"),
    ),
    cancel_execution("x"),
    replay("x"),
)
