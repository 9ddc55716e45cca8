"""One named execution is leased."""

from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from flowfabric.db.listen import CHANNEL
from flowfabric.db.rows import Connection
from flowfabric.db.waiter import register
from flowfabric.engine.lifecycle.claim_by_id import LeaseRequest, claim_by_id
from flowfabric.engine.lifecycle.lease import LeaseHandleKind
from flowfabric.errors import LeaseConflict
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from tests import given
from tests.engine import controls
from tests.engine.grants import granted
from tests.engine.grants.granted import unchanged
from tests.engine.lifecycle.test_wake_ups import Ear

Another = Callable[[], Awaitable[Connection]]
TAKER = LeaseRequest(worker_id="w", worker_instance_id="w-1", lease_ttl=30)


def test_each_taker_has_a_lease_id_of_its_own() -> None:
    other = LeaseRequest(worker_id="w", worker_instance_id="w-1", lease_ttl=30)

    assert isinstance(TAKER.lease_id, UUID)
    assert TAKER.lease_id != other.lease_id


@pytest.mark.parametrize("state", ["active", "delayed", "completed", "waiting"])
async def test_what_somebody_moved_since_is_left_alone(db: Connection, state: str) -> None:
    execution_id = await controls.execution(db, state)
    epoch = (await given.row(db, execution_id))["lease_epoch"]

    async with unchanged(db):
        with pytest.raises(LeaseConflict):
            await claim_by_id(
                db,
                execution_id,
                TAKER,
                lease_epoch=epoch + (state == "waiting"),
                kind=LeaseHandleKind.FRESH,
            )


async def test_what_does_not_exist_cannot_be_taken(db: Connection) -> None:
    with pytest.raises(LeaseConflict):
        await claim_by_id(db, ExecutionId.mint(), TAKER, lease_epoch=0, kind=LeaseHandleKind.FRESH)


async def test_every_grant_of_it_is_used_up_and_no_other(db: Connection, clock: Clock) -> None:
    await granted.keyed(db)
    execution_id, other = await given.created(db), await given.created(db)
    await granted.claim_granted(db, execution_id)
    await granted.claim_granted(db, other)
    await clock.advance(10)
    await granted.claim_granted(db, execution_id)

    await claim_by_id(db, execution_id, TAKER, lease_epoch=0, kind=LeaseHandleKind.FRESH)

    assert [grant["execution_id"] for grant in await granted.grants(db)] == [other.uuid]


async def test_the_event_tells_who_holds_what(db: Connection, clock: Clock) -> None:
    execution_id = await given.created(db, tags={"cairn.instance_id": "i-1"})

    task = await claim_by_id(db, execution_id, TAKER, lease_epoch=0, kind=LeaseHandleKind.FRESH)

    [event] = await given.lease_history(db, execution_id)
    assert event == event | {
        "event_type": "acquired",
        "lease_id": task.lease.lease_id,
        "lease_epoch": 1,
        "attempt_index": 0,
        "worker_instance_id": "w-1",
        "occurred_at_ms": await clock.now_ms(),
        "partition_key": execution_id.partition_key,
        "tags": '{"cairn.instance_id": "i-1"}',
    }


async def test_whoever_follows_leases_is_woken(
    db: Connection, clock: Clock, direct: Another
) -> None:
    await given.created(db)
    execution_id = await given.created(db)
    await register(db, "somebody", ["lease", "completion", "lane:default"])
    listener, ear = await direct(), Ear(db)
    await listener.add_listener(CHANNEL, ear.hear)

    await claim_by_id(db, execution_id, TAKER, lease_epoch=0, kind=LeaseHandleKind.FRESH)

    assert await ear.heard() == ["lease"]
    await listener.remove_listener(CHANNEL, ear.hear)
