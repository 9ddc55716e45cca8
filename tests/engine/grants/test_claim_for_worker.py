"""The best claimable execution is promised to one worker."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.claim_for_worker import claim_for_worker
from flowfabric.engine.grants.grant import ClaimGrant, grant_id
from flowfabric.engine.grants.verify_grant import verify_grant
from flowfabric.engine.lifecycle.claim import Claimant, claim
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.errors import Unavailable, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.testing import Clock
from tests import given
from tests.engine.grants import granted
from tests.engine.grants.granted import BAD_TERMS, TERMS, unchanged

Another = Callable[[], Awaitable[Connection]]
STRANGER = Claimant(worker_id="x", worker_instance_id="x-1", lanes=("default",))
WAITING = "runnable/eligible_now/waiting_for_worker/none/pending_first_attempt → waiting"


@pytest.fixture
async def key(db: Connection, clock: Clock) -> None:
    await granted.keyed(db)


async def ask(db: Connection, **terms: Any) -> ClaimGrant | None:
    """The call, in a transaction of its own."""
    async with db.transaction():
        return await claim_for_worker(db, **TERMS | terms)


async def asked(db: Connection, **terms: Any) -> ExecutionId | None:
    grant = await ask(db, **terms)
    return None if grant is None else grant.execution_id


async def test_what_is_granted_is_stored_and_the_execution_is_not_touched(
    db: Connection, clock: Clock, key: None
) -> None:
    execution_id = await given.created(db, required_capabilities=("gpu",))
    before = await given.row(db, execution_id)
    await clock.advance(5)

    grant = await ask(db, worker_capabilities=["ssd", "gpu", "gpu"], grant_ttl=60)

    now = await clock.now_ms()
    assert grant is not None
    assert grant.execution_id == execution_id
    assert grant.partition_key == f"{{fp:{execution_id.partition_key}}}"
    assert grant.expires_at == instant(now + 60_000)
    assert await granted.grants(db) == [
        {
            "partition_key": execution_id.partition_key,
            "grant_id": grant_id(grant.grant_key),
            "execution_id": execution_id.uuid,
            "kind": "claim",
            "worker_id": "w",
            "worker_instance_id": "w-1",
            "lane_id": "default",
            "worker_capabilities": ["gpu", "ssd"],
            "capability_hash": None,
            "route_snapshot_json": None,
            "admission_summary": None,
            "grant_ttl_ms": 60_000,
            "issued_at_ms": now,
            "expires_at_ms": now + 60_000,
            "lease_epoch": 0,
        }
    ]
    assert await given.row(db, execution_id) == before
    assert await given.lease_events(db, execution_id) == []
    assert (await verify_grant(db, grant)).worker_id == "w"


async def test_an_execution_that_was_granted_here_can_be_claimed(db: Connection, key: None) -> None:
    execution_id = await given.created(db)
    await ask(db)
    assert await given.standing(db, execution_id) == WAITING

    task = await granted.claim_it(db, execution_id)

    assert task.lease.execution_id == execution_id


async def test_nothing_to_claim_is_none(db: Connection, key: None) -> None:
    await given.created(db, delay=60)
    await given.created(db, lane_id="other")
    await given.created(db, namespace="other")
    await given.created(db, required_capabilities=("gpu",))
    await given.claimed(db)

    async with unchanged(db):
        assert await ask(db) is None


async def test_a_lane_that_is_paused_grants_nothing(db: Connection, key: None) -> None:
    await given.created(db)
    await db.execute("UPDATE ff.lane_registry SET lane_state = 'paused'")

    assert await ask(db) is None


async def test_highest_priority_first_then_the_oldest(
    db: Connection, clock: Clock, key: None
) -> None:
    late = []
    for priority in (1, 5, 1, 5):
        late.append(await given.created(db, priority=priority, execution_kind=f"kind{priority}"))
        await clock.advance(0.01)

    order = [await asked(db) for _ in range(5)]

    assert order == [late[1], late[3], late[0], late[2], None]


async def test_a_namespace_of_its_own(db: Connection, key: None) -> None:
    execution_id = await given.created(db, namespace="shop")

    assert await asked(db) is None
    assert await asked(db, namespace="shop") == execution_id


async def test_what_is_promised_is_not_promised_again_before_its_instant_has_come(
    db: Connection, clock: Clock, key: None
) -> None:
    execution_id = await given.created(db)
    assert await asked(db, grant_ttl=5) == execution_id
    await clock.advance(4.999)

    for worker in ("w", "x"):
        assert await asked(db, worker_id=worker) is None
    await clock.advance(0.001)

    assert await asked(db, worker_id="x") == execution_id
    assert [grant["worker_id"] for grant in await granted.grants(db)] == ["w", "x"]


async def test_what_is_promised_for_a_reclaim_is_passed_over_too(
    db: Connection, clock: Clock, key: None
) -> None:
    for _ in range(3):
        await given.created(db, priority=9)
    losses = await claim(db, given.WORKER, ttl=1, limit=3)
    await clock.advance(2)
    await expire_leases(db, limit=10)
    for loss in losses:
        await granted.reclaim_granted(db, loss.lease.execution_id, worker_id="x")
    assert await asked(db) is None
    behind = await given.created(db)

    assert await asked(db) == behind
    assert await asked(db) is None
    await clock.advance(10)
    assert {await asked(db) for _ in range(4)} == {
        behind,
        *(loss.lease.execution_id for loss in losses),
    }


async def test_an_interrupted_execution_can_be_granted(
    db: Connection, clock: Clock, key: None
) -> None:
    lease = await granted.lost(db, clock)
    assert await asked(db) is None
    await expire_leases(db, limit=10)

    assert await asked(db) == lease.execution_id


@pytest.mark.parametrize(("terms", "named"), BAD_TERMS)
async def test_the_terms_must_make_sense(db: Connection, terms: dict[str, Any], named: str) -> None:
    """Before anything else: here there is no key either."""
    await given.created(db)

    async with unchanged(db):
        with pytest.raises(ValidationError, match=named):
            await ask(db, **terms)


@pytest.mark.parametrize("grant_ttl", [0.001, 60, timedelta(minutes=1)])
async def test_a_grant_lasts_from_a_millisecond_to_a_minute(
    db: Connection, key: None, grant_ttl: float | timedelta
) -> None:
    await given.created(db)

    assert await ask(db, grant_ttl=grant_ttl) is not None


async def test_without_a_key_nothing_can_be_granted(db: Connection) -> None:
    async with unchanged(db):
        with pytest.raises(Unavailable, match=r"claim_for_worker: .*keystore empty"):
            await ask(db)


async def test_two_at_once_are_promised_different_executions(
    db: Connection, another: Another, key: None
) -> None:
    executions = {await given.created(db), await given.created(db)}
    first, second = await another(), await another()
    async with first.transaction():
        one = await claim_for_worker(first, **TERMS)
        two = await ask(second, worker_id="x")
        assert await ask(db) is None

    assert one is not None
    assert two is not None
    assert {one.execution_id, two.execution_id} == executions


async def test_a_promise_that_the_look_did_not_see_is_kept(db: Connection, key: None) -> None:
    """A grant may be committed between the look at a row and its lock."""
    promised, free = await given.created(db, priority=9), await given.created(db)
    assert await asked(db) == promised
    undone = db.transaction()
    await undone.start()
    await db.execute(
        "CREATE OR REPLACE FUNCTION ff.reserved(p_partition_key smallint, p_execution_id uuid,"
        " p_worker_id text) RETURNS boolean LANGUAGE sql STABLE RETURN false"
    )
    try:
        assert await asked(db, worker_id="x") == free
        assert await asked(db, worker_id="x") is None
    finally:
        await undone.rollback()


# A plain claim beside grants.


async def test_a_plain_claim_leaves_what_is_promised_to_another_worker(
    db: Connection, clock: Clock, key: None
) -> None:
    promised, free = await given.created(db, priority=9), await given.created(db)
    assert await asked(db, grant_ttl=5) == promised

    [task] = await claim(db, STRANGER, ttl=30, limit=10)
    assert task.lease.execution_id == free
    await clock.advance(4.999)
    assert await claim(db, STRANGER, ttl=30, limit=10) == []
    await clock.advance(0.001)

    [task] = await claim(db, STRANGER, ttl=30, limit=10)
    assert task.lease.execution_id == promised


async def test_a_plain_claim_takes_what_is_promised_to_its_own_worker(
    db: Connection, key: None
) -> None:
    promised = await given.created(db)
    await ask(db)

    [task] = await claim(db, given.OTHER, ttl=30)

    assert task.lease.execution_id == promised


async def test_several_routes_beside_a_promise(db: Connection, key: None) -> None:
    promised = await given.created(db, execution_kind="a", priority=9)
    free = [await given.created(db, execution_kind=kind) for kind in "aab"]
    assert await asked(db) == promised

    tasks = await claim(db, STRANGER, ttl=30, limit=10)

    assert [task.lease.execution_id for task in tasks] == free
