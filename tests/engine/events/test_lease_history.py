"""Leases taken and given up, told to those who subscribe."""

from flowfabric.db.rows import Connection
from flowfabric.engine.events.cursor import encode_cursor
from flowfabric.engine.events.lease_events import revoked_by
from flowfabric.engine.events.list_ended_leases import list_ended_leases
from flowfabric.engine.events.subscribe import Hub
from flowfabric.engine.events.subscribe_lease_history import subscribe_lease_history
from flowfabric.engine.executions.read_lease_expiries import read_lease_expiries
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.revoke_lease import revoke_leases
from flowfabric.states import AttemptOutcome, LeaseEventReason, LeaseEventType
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases
from tests.engine.events.facts import taken


async def test_a_lease_is_told_with_all_that_is_known_of_it(
    hub: Hub, db: Connection, clock: Clock
) -> None:
    history = await subscribe_lease_history(hub)
    lease = await given.claimed(db, tags={"shop.tenant": "acme"})
    await clock.advance(2)
    await release(db, [lease])

    taken_up, given_up = await taken(history, 2)

    for event in (taken_up, given_up):
        assert event.execution_id == lease.execution_id
        assert (event.lease_id, event.lease_epoch) == (lease.lease_id, lease.lease_epoch)
        assert event.attempt_index == 0
        assert event.worker_instance_id == "w-1"
        assert (event.namespace, event.lane_id) == ("default", "default")
        assert event.tags == {"shop.tenant": "acme"}
    assert (taken_up.kind, taken_up.reason, taken_up.revoked_by) == ("acquired", None, None)
    assert (given_up.kind, given_up.reason) == ("revoked", "released")
    assert given_up.revoked_by == "worker"
    assert given_up.at == await clock.now()
    assert (given_up.at - taken_up.at).total_seconds() == 2


async def test_the_story_of_an_execution_is_told_in_order(
    hub: Hub, db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db, policy=given.retrying())
    await renew(db, [lease], ttl=30, record=True)
    await release(db, [lease])
    [task] = await claim(db, given.OTHER, ttl=30)
    await clock.advance(31)
    await expire_leases(db, limit=10)
    [task] = await claim(db, given.WORKER, ttl=30)
    await fail(db, [Failure(lease=task.lease, reason="boom")])
    await cancel_execution(db, lease.execution_id, reason="no")
    done = await given.claimed(db)
    await complete(db, [Completion(done)])
    stopped = await given.claimed(db)
    await cancel_execution(db, stopped.execution_id, reason="no")

    told = await taken(await subscribe_lease_history(hub, encode_cursor(0)), 11)

    assert [(str(event.kind), event.reason, event.revoked_by) for event in told] == [
        ("acquired", None, None),
        ("renewed", None, None),
        ("revoked", "released", "worker"),
        ("acquired", None, None),
        ("expired", None, "reconciler"),
        ("acquired", None, None),
        ("revoked", "retry", "worker"),
        ("acquired", None, None),
        ("revoked", "completed", "worker"),
        ("acquired", None, None),
        ("revoked", "cancelled", "backend"),
    ]
    assert [event.worker_instance_id for event in told[3:5]] == ["w-2", "w-2"]


REASONS = (*LeaseEventReason, None)


@all_cases("reason", REASONS)
def test_who_ended_a_lease_follows_from_how_it_ended(reason: LeaseEventReason | None) -> None:
    exceptions: dict[LeaseEventReason | None, str] = {
        LeaseEventReason.OPERATOR: "operator",
        LeaseEventReason.CANCELLED: "backend",
    }

    assert revoked_by(LeaseEventType.REVOKED, reason) == exceptions.get(reason, "worker")
    assert revoked_by(LeaseEventType.EXPIRED, reason) == exceptions.get(reason, "reconciler")
    for kind in (LeaseEventType.ACQUIRED, LeaseEventType.RENEWED, LeaseEventType.RECLAIMED):
        assert revoked_by(kind, reason) is None


async def test_ended_leases_of_a_process_are_those_that_it_gave_up_or_that_it_lost(
    db: Connection,
) -> None:
    done = await given.claimed(db)
    await complete(db, [Completion(done)])
    held = await given.claimed(db)
    gone = await given.claimed(db)
    async with db.transaction():
        await revoke_leases(db, [gone.execution_id], reason="stuck")

    [ended] = await list_ended_leases(db, given.WORKER.worker_instance_id, namespace="default")
    [lost] = await list_ended_leases(
        db, given.WORKER.worker_instance_id, namespace="default", lost=True
    )

    assert (ended.execution_id, ended.outcome) == (done.execution_id, AttemptOutcome.SUCCESS)
    assert ended.started_at is not None
    assert (lost.execution_id, lost.ended_as) == (gone.execution_id, "revoked")
    assert await list_ended_leases(db, "other", namespace="default") == []
    assert list(await read_lease_expiries(db, [held.execution_id, gone.execution_id])) == [
        held.execution_id
    ]
