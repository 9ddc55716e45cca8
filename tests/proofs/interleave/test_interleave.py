"""What the proof is worth: planted faults are found, and a schedule can be played again."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

from flowfabric.db.rows import Connection, execute, fetch_one
from flowfabric.db.transaction import transact
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import Claimant, claim
from tests.proofs.interleave.explore import Case, Found, explore
from tests.proofs.interleave.families import FLOW_SITUATIONS
from tests.proofs.interleave.flow_operations import EVERYBODY
from tests.proofs.interleave.lock_order import Batch, Crossed, meet
from tests.proofs.interleave.operations import (
    LANE,
    Operation,
    cancel_execution,
    change_priority,
    complete,
)
from tests.proofs.interleave.programme import PARTS, WAKES, meetings
from tests.proofs.interleave.scene import Scene
from tests.proofs.interleave.setting import set_scenes
from tests.proofs.interleave.situations import Situation, held, waiting
from tests.proofs.interleave.stage import Stage
from tests.proofs.interleave.waits import LOOK, WAITS, waits_either_way

CORE = """
-- planted.core
SELECT priority FROM ff.exec_core WHERE execution_id = %(x)s FOR UPDATE
"""
BODY = """
-- planted.body
SELECT 0 AS priority FROM ff.exec_body WHERE execution_id = %(x)s FOR UPDATE
"""
READ = """
-- planted.read
SELECT priority FROM ff.execution WHERE execution_id = %(x)s
"""
WRITE = """
-- planted.write
UPDATE ff.exec_core SET priority = %(priority)s WHERE execution_id = %(x)s
"""
SUCCEED = """
-- planted.succeed
INSERT INTO ff.completion_event (
       execution_id, route_id, created_at_ms, occurred_at_ms, partition_key, outcome)
SELECT execution_id, route_id, created_at_ms, 0, partition_key, 'success' FROM ff.execution
 WHERE execution_id = %(x)s
"""
CREATE_TWICE = """
-- planted.create_twice
INSERT INTO ff.exec_body SELECT * FROM ff.exec_body WHERE execution_id = %(x)s
"""


class Row(msgspec.Struct, frozen=True):
    priority: int


def planted(name: str, body: Any, **flags: Any) -> Operation:
    """An operation with a fault: a transaction of its own statements."""

    async def call(engine: Engine, scene: Scene, side: int) -> Any:
        return await transact(engine.pool, name, lambda conn: body(conn, scene.id("x").uuid, side))

    return Operation(name, call, **flags)


async def lose_updates(conn: Connection, x: Any, _side: int) -> None:
    seen = await fetch_one(conn, READ, Row, x=x)
    await execute(conn, WRITE, x=x, priority=seen.priority + 1)


async def lock_crosswise(conn: Connection, x: Any, side: int) -> None:
    for statement in (CORE, BODY) if side else (BODY, CORE):
        await fetch_one(conn, statement, Row, x=x)


async def succeed_unfenced(conn: Connection, x: Any, _side: int) -> None:
    await execute(conn, SUCCEED, x=x)


async def create_twice(conn: Connection, x: Any, _side: int) -> None:
    await fetch_one(conn, READ, Row, x=x)
    await execute(conn, CREATE_TWICE, x=x)


async def claim_and_commit(conn: Connection, _x: Any, side: int) -> Any:
    """A claim whose commit is a step of its own."""
    claimant = Claimant(worker_id="w", worker_instance_id=f"w-{side}", lanes=(LANE,))
    return await claim(conn, claimant, ttl=30)


@pytest.fixture
async def stage(ff_dsn: str) -> AsyncGenerator[Stage]:
    stage = await Stage.open(ff_dsn, 3)
    try:
        yield stage
    finally:
        await stage.close()


@pytest.fixture
async def scenes(stage: Stage) -> dict[str, Scene]:
    return await set_scenes(stage, [Situation("waiting", waiting), Situation("held", held)])


async def explored(stage: Stage, scene: Scene, *operations: Operation) -> Found:
    return await explore(stage, Case(scene, operations), random.Random(1), 100)


async def test_operations_that_take_their_locks_equal_a_serial_order(
    stage: Stage, scenes: dict[str, Scene]
) -> None:
    found = await explored(stage, scenes["held"], complete("x"), cancel_execution("x"))

    assert (found.exhausted, found.equal == found.plays > 0, found.faults) == (1, True, [])
    assert (found.deadlocks, found.raw, found.overwritten, found.successes_after) == (0, 0, 0, 0)
    assert found.acked > 0


async def test_a_lost_update_is_found_and_can_be_played_again(
    stage: Stage, scenes: dict[str, Scene]
) -> None:
    scene, careless = scenes["waiting"], planted("careless", lose_updates)

    found = await explored(stage, scene, careless, careless)

    assert 0 < len(found.faults) == found.plays - found.equal
    schedule = found.faults[0].split("steps ")[1].split(":")[0]
    again = [await stage.play(scene, (careless, careless), [*map(int, schedule)]) for _ in "ab"]
    assert again[0].outcome == again[1].outcome
    assert "".join(map(str, again[0].trace)) == schedule
    assert f"--steps {schedule}" in found.faults[0]


async def test_locks_that_are_taken_crosswise_are_a_deadlock(
    stage: Stage, scenes: dict[str, Scene]
) -> None:
    crosswise = planted("crosswise", lock_crosswise)

    found = await explored(stage, scenes["waiting"], crosswise, crosswise)

    assert found.deadlocks > 0
    assert found.faults


async def test_an_end_beside_another_one_is_an_overwritten_outcome(
    stage: Stage, scenes: dict[str, Scene]
) -> None:
    unfenced = planted("unfenced", succeed_unfenced)

    found = await explored(stage, scenes["held"], unfenced, cancel_execution("x"))

    assert found.overwritten > 0
    assert found.successes_after > 0
    assert found.acked >= found.successes_after


async def test_an_error_of_the_database_that_is_handed_on_is_counted(
    stage: Stage, scenes: dict[str, Scene]
) -> None:
    found = await explored(stage, scenes["held"], planted("twice", create_twice), complete("x"))

    assert found.raw == found.plays > 0
    assert found.faults


async def test_a_sweep_that_passes_over_a_row_in_use_has_another_turn(
    stage: Stage, scenes: dict[str, Scene]
) -> None:
    claiming = planted("claim", claim_and_commit, passes_over=True)

    found = await explored(stage, scenes["waiting"], claiming, change_priority("x"))

    assert 0 < found.next_turn < found.equal == found.plays


# Waits and what wakes them.

LOOK_AT_SIGNALS = """
-- planted.look_at_signals
SELECT signal_seq AS priority FROM ff.exec_core WHERE execution_id = %(x)s
"""
LOOK_AT_WAITPOINTS = """
-- planted.look_at_waitpoints
SELECT count(*)::integer AS priority FROM ff.waitpoint_pending
 WHERE execution_id = %(x)s AND state = 'closed'
"""


async def look_twice(conn: Connection, x: Any, _side: int) -> list[int]:
    looks = [
        await fetch_one(conn, each, Row, x=x) for each in (LOOK_AT_SIGNALS, LOOK_AT_WAITPOINTS)
    ]
    return [each.priority for each in looks]


async def test_a_look_sees_all_of_a_signal_or_nothing_and_a_torn_one_is_found(
    stage: Stage,
) -> None:
    scenes = await set_scenes(stage, [Situation("waits_either_way", waits_either_way)])
    [scene] = scenes.values()
    [signal] = [one for one in WAITS if one.name == "send_signal x"]

    whole = await explored(stage, scene, LOOK, signal)
    torn = await explored(stage, scene, planted("look twice", look_twice), signal)

    assert (whole.equal == whole.plays > 0, whole.faults) == (True, [])
    assert torn.faults


async def test_every_pair_that_could_lose_a_wake_up_meets_where_both_do_something(
    stage: Stage,
) -> None:
    met: set[frozenset[str]] = set()
    for part in PARTS[2:]:
        named = [one for one in part.operations if any(one.name in pair for pair in WAKES)]
        for scene in (await set_scenes(stage, part.situations)).values():
            met |= {
                meeting.pair
                for meeting in await meetings(stage, scene, named)
                if meeting.effective == 2 or LOOK in meeting.operations
            }

    assert met >= WAKES


# The order in which one statement locks.


async def locks_of(stage: Stage, scene: Scene, operation: Operation) -> Batch:
    await stage.play(scene, (operation,))
    locks = stage.locks[scene.name, operation.name, "exec_core"]
    return Batch(scene.name, operation, "exec_core", locks)


@pytest.fixture
async def joined(stage: Stage) -> Scene:
    [joining] = [each for each in FLOW_SITUATIONS if each.name == "joining"]
    return (await set_scenes(stage, [joining]))["joining"]


LOCK_ALL = """
-- planted.lock_all
SELECT FROM ff.exec_core ORDER BY execution_id FOR NO KEY UPDATE
"""
LOCK_ALL_BACKWARDS = """
-- planted.lock_all_backwards
SELECT FROM ff.exec_core ORDER BY execution_id DESC FOR NO KEY UPDATE
"""


@pytest.mark.parametrize(("statement", "crosses"), [(LOCK_ALL, False), (LOCK_ALL_BACKWARDS, True)])
async def test_a_statement_that_locks_in_another_order_is_found(
    stage: Stage, joined: Scene, statement: Any, crosses: bool
) -> None:
    async def call(engine: Engine, _scene: Scene, _side: int) -> None:
        await transact(engine.pool, "lock", lambda conn: execute(conn, statement))

    batch = await locks_of(stage, joined, Operation("lock", call, ()))
    crossed = Crossed()

    await meet(stage, joined, batch, EVERYBODY, crossed)

    assert len(batch.locks) == len(joined.ids) > 2
    assert crossed.meetings == crossed.waited == len(batch.locks) - 1
    assert bool(crossed.faults) == crosses
