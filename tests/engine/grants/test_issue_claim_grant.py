"""One named execution is promised to one worker."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.grants.grant import ClaimGrant, grant_id
from flowfabric.engine.grants.issue_claim_grant import issue_claim_grant
from flowfabric.engine.grants.verify_grant import verify_grant
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.errors import (
    ExecutionNotEligible,
    ExecutionNotLeaseable,
    GrantAlreadyExists,
    NotFound,
    Unavailable,
    ValidationError,
)
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.testing import Clock
from tests import given
from tests.engine import controls
from tests.engine.grants import granted
from tests.engine.grants.granted import BAD_GROUNDS, BAD_TERMS, GROUNDS, TERMS, unchanged

Another = Callable[[], Awaitable[Connection]]


@pytest.fixture
async def key(db: Connection, clock: Clock) -> None:
    await granted.keyed(db)


async def refused(db: Connection, execution_id: ExecutionId, error: Any, **terms: Any) -> Any:
    """The error, after which nothing was written."""
    async with unchanged(db):
        with pytest.raises(error) as told:
            await granted.claim_granted(db, execution_id, **terms)
    return told.value


@pytest.mark.parametrize("state", controls.WAITING)
async def test_what_waits_is_granted_and_not_touched(
    db: Connection, clock: Clock, key: None, state: str
) -> None:
    execution_id = await controls.execution(db, state)
    before = await given.row(db, execution_id), await given.lease_events(db, execution_id)
    await clock.advance(5)

    grant = await granted.claim_granted(db, execution_id, **GROUNDS)

    now = await clock.now_ms()
    assert (grant.execution_id, grant.expires_at) == (execution_id, instant(now + 10_000))
    [stored] = await granted.grants(db)
    assert stored == stored | {
        "grant_id": grant_id(grant.grant_key),
        "partition_key": execution_id.partition_key,
        "execution_id": execution_id.uuid,
        "kind": "claim",
        "issued_at_ms": now,
        "expires_at_ms": now + 10_000,
        "capability_hash": "c0ffee",
        "admission_summary": "two budgets",
    }
    assert msgspec.json.decode(stored["route_snapshot_json"]) == {"zone": "a"}
    assert (await given.row(db, execution_id), await given.lease_events(db, execution_id)) == before
    await verify_grant(db, grant)


@pytest.mark.parametrize(("terms", "named"), BAD_TERMS + BAD_GROUNDS)
async def test_the_terms_must_make_sense(db: Connection, terms: dict[str, Any], named: str) -> None:
    error = await refused(db, ExecutionId.mint(), ValidationError, **terms)

    assert named in str(error)


async def test_without_a_key_nothing_can_be_granted(db: Connection) -> None:
    error = await refused(db, ExecutionId.mint(), Unavailable)

    assert "issue_claim_grant" in str(error)
    assert "keystore empty" in str(error)


async def test_an_execution_that_does_not_exist_is_not_found(db: Connection, key: None) -> None:
    await refused(db, ExecutionId.mint(), NotFound)


async def test_another_lane_than_its_own_is_refused(db: Connection, key: None) -> None:
    error = await refused(db, await given.created(db, delay=60), ValidationError, lane_id="other")

    assert error.code == "invalid_input"


@pytest.mark.parametrize("state", ["delayed", "retrying", "blocked", "active", *controls.TERMINAL])
async def test_what_does_not_wait_for_a_worker_is_not_eligible(
    db: Connection, key: None, state: str
) -> None:
    execution_id = await controls.execution(db, state)

    error = await refused(db, execution_id, ExecutionNotEligible)

    assert error.public_state == await given.public_state(db, execution_id)


async def test_a_draining_lane_is_granted_from(db: Connection, key: None) -> None:
    execution_id = await given.created(db)
    await db.execute("UPDATE ff.lane_registry SET lane_state = 'draining'")

    assert (await granted.claim_granted(db, execution_id)).execution_id == execution_id


@pytest.mark.parametrize("state", ["paused", "disabled"])
async def test_nothing_is_granted_on_a_lane_that_starts_nothing(
    db: Connection, key: None, state: str
) -> None:
    execution_id = await given.created(db)
    await db.execute("UPDATE ff.lane_registry SET lane_state = $1", state)

    error = await refused(db, execution_id, ExecutionNotLeaseable)

    assert state in str(error)


async def test_a_second_grant_waits_until_the_first_has_run_out(
    db: Connection, clock: Clock, key: None
) -> None:
    execution_id = await given.created(db, required_capabilities=("gpu",))
    gpu = {"worker_capabilities": ["gpu"]}
    await granted.claim_granted(db, execution_id, **gpu)
    await clock.advance(9.999)

    for worker in ("w", "x"):
        await refused(db, execution_id, GrantAlreadyExists, worker_id=worker, **gpu)
    # It is said before what the worker lacks.
    await refused(db, execution_id, GrantAlreadyExists)
    await clock.advance(0.001)

    await granted.claim_granted(db, execution_id, worker_id="x", **gpu)


async def test_a_reclaim_grant_that_runs_is_a_grant_too(
    db: Connection, clock: Clock, key: None
) -> None:
    execution_id = await controls.execution(db, "released")
    await granted.reclaim_granted(db, execution_id)

    await refused(db, execution_id, GrantAlreadyExists)


async def test_a_worker_that_lacks_capabilities_is_told_which_and_the_execution_remembers(
    db: Connection, clock: Clock, key: None
) -> None:
    execution_id = await given.created(db, required_capabilities=("ssd", "gpu", "eu"))
    before = await given.row(db, execution_id)
    await clock.advance(5)

    async with db.transaction():
        terms: dict[str, Any] = TERMS | {"worker_capabilities": ["GPU", "eu"]}
        answer = await issue_claim_grant(db, execution_id, **terms)

    assert isinstance(answer, ValidationError)
    assert (answer.code, answer.detail) == ("capability_mismatch", "gpu,ssd")
    now = await clock.now_ms()
    assert await given.row(db, execution_id) == before | {
        "last_capability_mismatch_at_ms": now,
        "last_mutation_at_ms": now,
    }
    assert await granted.grants(db) == []


async def test_capabilities_that_cover_what_is_required_will_do(db: Connection, key: None) -> None:
    execution_id = await given.created(db, required_capabilities=("gpu",))

    await granted.claim_granted(db, execution_id, worker_capabilities=["ssd", "gpu"])

    assert (await given.row(db, execution_id))["last_capability_mismatch_at_ms"] is None


async def test_of_two_at_once_one_is_granted_it(
    db: Connection, another: Another, key: None
) -> None:
    execution_id = await given.created(db)
    first, second = await another(), await another()
    async with first.transaction():
        assert isinstance(await issue_claim_grant(first, execution_id, **TERMS), ClaimGrant)
        call = granted.claim_granted(second, execution_id, worker_id="x")
        waiting = await given.blocked(db, second, call)

    with pytest.raises(GrantAlreadyExists):
        await waiting


async def test_a_grant_for_what_a_claim_takes_meanwhile_is_refused(
    db: Connection, another: Another, key: None
) -> None:
    execution_id = await given.created(db)
    first, second = await another(), await another()
    async with first.transaction():
        assert len(await claim(first, given.WORKER, ttl=30)) == 1
        waiting = await given.blocked(db, second, granted.claim_granted(second, execution_id))

    with pytest.raises(ExecutionNotEligible):
        await waiting


async def test_a_cancelled_execution_keeps_no_grant(db: Connection, key: None) -> None:
    cancelled, other = await given.created(db), await given.created(db)
    for execution_id in (cancelled, other):
        await granted.claim_granted(db, execution_id)

    await cancel_execution(db, cancelled, reason="no")

    assert [grant["execution_id"] for grant in await granted.grants(db)] == [other.uuid]


async def test_a_cancel_that_waited_for_a_grant_leaves_none(
    db: Connection, another: Another, key: None, ff_engine: Engine
) -> None:
    execution_id = await given.created(db)
    granter = await another()
    async with granter.transaction():
        await granted.claim_granted(granter, execution_id)
        cancelling = await controls.waiting(
            db, ff_engine.cancel_execution(execution_id, reason="no")
        )

    assert not (await cancelling).repeated
    assert await granted.grants(db) == []
