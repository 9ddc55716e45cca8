"""Wake-ups: what an operator makes claimable rings for the workers that wait for it."""

from collections.abc import AsyncGenerator

import pytest

from flowfabric.db.listen import CHANNEL
from flowfabric.db.rows import Connection
from flowfabric.db.waiter import register
from flowfabric.engine.lanes.set_lane_state import set_lane_state
from flowfabric.engine.lifecycle.unblock_routes import unblock_routes
from flowfabric.engine.operators.block_execution_for_admission import block_execution_for_admission
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.change_priority import change_priority
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.engine.operators.revoke_lease import revoke_lease
from flowfabric.engine.operators.set_execution_tag import set_execution_tag
from flowfabric.engine.operators.unblock_execution import unblock_execution
from flowfabric.engine.retention.trim import Trim
from flowfabric.engine.retention.trim_retention import trim_retention
from flowfabric.engine.workers.register_worker import register_worker
from flowfabric.errors import FlowFabricError
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another, execution
from tests.engine.lifecycle.test_wake_ups import Ear

TOPICS = ["lane:default", "lane:mail", "completion", "operator"]


@pytest.fixture
async def ear(db: Connection, direct: Another, clock: Clock) -> AsyncGenerator[Ear]:
    """Hears what is notified; somebody waits for everything, as long as the clock stands."""
    listener, ear = await direct(), Ear(db)
    await listener.add_listener(CHANNEL, ear.hear)
    await register(db, "somebody", TOPICS)
    yield ear
    await listener.remove_listener(CHANNEL, ear.hear)


async def lanes_heard(ear: Ear) -> list[str]:
    return [topic for topic in await ear.heard() if topic.startswith("lane:")]


@pytest.mark.parametrize("state", ["active", "draining"])
@pytest.mark.parametrize("rest", ["paused", "disabled"])
async def test_a_lane_that_starts_again_rings(
    db: Connection, ear: Ear, rest: str, state: str
) -> None:
    await given.created(db)
    await set_lane_state(db, "default", rest)
    await ear.heard()

    await set_lane_state(db, "default", state)

    assert await ear.heard() == ["lane:default", "operator"]


@pytest.mark.parametrize("state", ["paused", "draining", "disabled"])
async def test_a_lane_that_comes_to_rest_rings_no_worker(
    db: Connection, ear: Ear, state: str
) -> None:
    await given.created(db)
    await ear.heard()

    await set_lane_state(db, "default", state)

    assert await lanes_heard(ear) == []


async def test_a_lane_that_is_active_already_rings_nobody(db: Connection, ear: Ear) -> None:
    await given.created(db)
    await ear.heard()

    await set_lane_state(db, "default", "active")

    assert await ear.heard() == []


async def test_a_change_rings_when_it_is_committed_and_only_then(
    db: Connection, ear: Ear, another: Another
) -> None:
    await given.created(db)
    await set_lane_state(db, "default", "paused")
    await ear.heard()
    operator = await another()

    async with operator.transaction():
        await set_lane_state(operator, "default", "active")
        assert await ear.heard() == []

    assert await lanes_heard(ear) == ["lane:default"]


async def test_a_revoked_lease_rings_its_lane(db: Connection, ear: Ear) -> None:
    lease = await given.claimed(db)
    await ear.heard()

    await revoke_lease(db, lease.execution_id, reason="stuck")

    assert await lanes_heard(ear) == ["lane:default"]


async def test_a_replay_rings_its_lane(db: Connection, ear: Ear) -> None:
    execution_id = await execution(db, "failed")
    await ear.heard()

    await replay_execution(db, execution_id)

    assert await lanes_heard(ear) == ["lane:default"]


async def test_what_is_let_go_rings_its_lane(db: Connection, ear: Ear) -> None:
    execution_id = await execution(db, "blocked")
    await ear.heard()

    await unblock_execution(db, execution_id)

    assert await lanes_heard(ear) == ["lane:default"]


async def test_what_a_capable_worker_lets_go_rings_each_lane_once(db: Connection, ear: Ear) -> None:
    for lane in ("default", "default", "mail"):
        execution_id = await given.created(db, lane_id=lane)
        await block_execution_for_admission(db, execution_id, "waiting_for_capable_worker")
    await register_worker(
        db,
        worker_id="w",
        worker_instance_id="w-1",
        lanes=["default", "mail"],
        liveness_ttl=30,
    )
    await ear.heard()

    await unblock_routes(db, limit=10)

    assert await ear.heard() == ["lane:default", "lane:mail"]


async def test_an_operators_cancel_rings_for_ends_and_for_actions(db: Connection, ear: Ear) -> None:
    execution_id = await given.created(db)
    await ear.heard()

    await cancel_execution(db, execution_id, reason="no")

    assert await ear.heard() == ["completion", "operator"]


async def test_what_makes_nothing_claimable_rings_no_worker(db: Connection, ear: Ear) -> None:
    waiting, ended = await given.created(db), await execution(db, "cancelled")
    await ear.heard()

    await change_priority(db, waiting, 7)
    await set_execution_tag(db, waiting, "shop.tenant", "t")
    await block_execution_for_admission(db, waiting, "paused_by_operator")
    await unblock_routes(db, limit=10)
    await revoke_lease(db, waiting, reason="nobody holds it")
    await trim_retention(db, Trim(lane_id="default", retention=0))
    with pytest.raises(FlowFabricError):
        await replay_execution(db, ended)

    assert await lanes_heard(ear) == []
