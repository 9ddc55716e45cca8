"""runnable(blocked_by_route) → runnable: a worker that can run it has come."""

from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.unblock_routes import unblock_routes
from flowfabric.engine.operators.block_execution_for_admission import block_execution_for_admission
from flowfabric.engine.workers.register_worker import register_worker
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import actions

WAITS = "runnable/eligible_now/waiting_for_worker/none/pending_first_attempt → waiting"


async def blocked(db: Connection, **fields: Any) -> ExecutionId:
    """An execution that needs a GPU and is held back until a worker offers one."""
    execution_id = await given.created(db, required_capabilities=("gpu",), **fields)
    await block_execution_for_admission(db, execution_id, "waiting_for_capable_worker")
    return execution_id


async def worker(db: Connection, **fields: Any) -> None:
    defaults: dict[str, Any] = {
        "worker_id": "w",
        "worker_instance_id": "w-1",
        "lanes": ["default"],
        "capabilities": ["gpu", "cpu"],
        "liveness_ttl": 30,
    }
    await register_worker(db, **(defaults | fields))


async def test_a_worker_that_covers_the_requirements_lets_it_go(
    db: Connection, clock: Clock
) -> None:
    execution_id = await blocked(db)
    await clock.advance(5)
    await worker(db)

    assert await unblock_routes(db, limit=10) == 1

    assert await given.standing(db, execution_id) == WAITS
    assert (await given.row(db, execution_id))["last_mutation_at_ms"] == await clock.now_ms()
    assert [each.event_type for each in await actions(db)] == ["blocked"]


async def test_without_a_worker_it_stays(db: Connection) -> None:
    await blocked(db)
    before = await given.everything(db)

    assert await unblock_routes(db, limit=10) == 0

    assert await given.everything(db) == before


@pytest.mark.parametrize(
    "offer",
    [{"lanes": ["mail"]}, {"capabilities": ["cpu"]}, {"namespace": "acme"}, {"liveness_ttl": 5}],
    ids=["another lane", "another capability", "another namespace", "its time is over"],
)
async def test_a_worker_that_does_not_serve_it_changes_nothing(
    db: Connection, clock: Clock, offer: dict[str, Any]
) -> None:
    await blocked(db)
    await worker(db, **offer)
    await clock.advance(5)
    before = await given.everything(db)

    assert await unblock_routes(db, limit=10) == 0

    assert await given.everything(db) == before


@pytest.mark.parametrize(
    "reason",
    ["waiting_for_budget", "waiting_for_quota", "paused_by_operator", "paused_by_policy"],
)
async def test_what_is_held_back_for_another_reason_stays(db: Connection, reason: str) -> None:
    execution_id = await given.created(db)
    await block_execution_for_admission(db, execution_id, reason)
    await worker(db)
    before = await given.everything(db)

    assert await unblock_routes(db, limit=10) == 0

    assert await given.everything(db) == before


async def test_a_sweep_keeps_to_its_limit(db: Connection) -> None:
    for kind in ("a", "b", "c"):
        await blocked(db, execution_kind=kind)
    await worker(db)

    assert [await unblock_routes(db, limit=2) for _ in range(3)] == [2, 1, 0]


async def test_what_somebody_works_on_is_passed_over(db: Connection, another: Any) -> None:
    execution_id = await blocked(db)
    await worker(db)
    operator = await another()
    async with operator.transaction():
        await operator.fetch(
            "SELECT FROM ff.exec_core WHERE execution_id = $1 FOR UPDATE", execution_id.uuid
        )
        assert await unblock_routes(db, limit=10) == 0

    assert await unblock_routes(db, limit=10) == 1
