"""An operator grants an execution to themselves and claims it in one go."""

from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.issue_grant_and_claim import GrantedClaim, issue_grant_and_claim
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import (
    ExecutionNotActive,
    ExecutionNotLeaseable,
    GrantAlreadyExists,
    NotFound,
    ValidationError,
)
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from tests import given
from tests.engine import controls
from tests.engine.grants import granted
from tests.engine.grants.granted import unchanged

ACTIVE = "active/not_applicable/none/none/running_attempt → active"


async def take_it(db: Connection, execution_id: ExecutionId, **more: Any) -> GrantedClaim:
    fields: dict[str, Any] = {"lane_id": "default", "lease_ttl": 30}
    async with db.transaction():
        return await issue_grant_and_claim(db, execution_id, **fields | more)


async def refused(db: Connection, execution_id: ExecutionId, error: Any, **fields: Any) -> Any:
    """The error, after which nothing was written."""
    async with unchanged(db):
        with pytest.raises(error) as told:
            await take_it(db, execution_id, **fields)
    return told.value


async def test_the_operator_holds_what_was_just_created(db: Connection, clock: Clock) -> None:
    """No key is needed: nothing is handed to anybody."""
    execution_id = await given.created(db, required_capabilities=("gpu",))

    answer = await take_it(db, execution_id)

    assert await given.standing(db, execution_id) == ACTIVE
    stored = await given.row(db, execution_id)
    assert stored == stored | {
        "worker_id": "operator",
        "worker_instance_id": "operator",
        "lease_expires_at_ms": await clock.now_ms() + 30_000,
        "attempt_type": "initial",
        "total_attempt_count": 1,
        "lease_epoch": 1,
    }
    assert answer == GrantedClaim(lease_id=stored["lease_id"], lease_epoch=1, attempt_index=0)
    assert await granted.grants(db) == []
    assert await given.lease_events(db, execution_id) == [("acquired", None)]
    lease = Lease(execution_id, 0, answer.lease_epoch, answer.lease_id)
    [done] = await complete(db, [Completion(lease, b"by hand")])
    assert isinstance(done, Completed)


async def test_an_interrupted_attempt_goes_on(db: Connection) -> None:
    execution_id = await controls.execution(db, "released")
    epoch = (await given.row(db, execution_id))["lease_epoch"]

    answer = await take_it(db, execution_id)

    assert (answer.attempt_index, answer.lease_epoch) == (0, epoch + 1)
    assert (await given.row(db, execution_id))["total_attempt_count"] == 1


@pytest.mark.parametrize("lease_ttl", [0, -1, True, "30"])
async def test_the_lease_must_last(db: Connection, lease_ttl: Any) -> None:
    error = await refused(db, ExecutionId.mint(), ValidationError, lease_ttl=lease_ttl)

    assert error.code == "invalid_input"


async def test_an_execution_that_does_not_exist_is_not_found(db: Connection) -> None:
    await refused(db, ExecutionId.mint(), NotFound)


async def test_another_lane_than_its_own_is_refused(db: Connection) -> None:
    error = await refused(db, await given.created(db), ValidationError, lane_id="other")

    assert "other" in error.detail


@pytest.mark.parametrize("state", ["active", *controls.TERMINAL])
async def test_what_is_not_runnable_cannot_be_taken(db: Connection, state: str) -> None:
    await refused(db, await controls.execution(db, state), ExecutionNotActive)


@pytest.mark.parametrize("state", ["delayed", "retrying", "blocked"])
async def test_what_may_not_be_claimed_now_cannot_be_taken(db: Connection, state: str) -> None:
    await refused(db, await controls.execution(db, state), ExecutionNotLeaseable)


async def test_nothing_is_taken_from_a_lane_that_is_not_active(db: Connection) -> None:
    execution_id = await given.created(db)
    await db.execute("UPDATE ff.lane_registry SET lane_state = 'disabled'")

    await refused(db, execution_id, ExecutionNotLeaseable)


async def test_a_promise_to_a_worker_is_kept_until_it_has_run_out(
    db: Connection, clock: Clock
) -> None:
    await granted.keyed(db)
    execution_id = await given.created(db)
    await granted.claim_granted(db, execution_id, grant_ttl=5)
    await clock.advance(4.999)
    await refused(db, execution_id, GrantAlreadyExists)
    await clock.advance(0.001)

    await take_it(db, execution_id)

    assert await granted.grants(db) == []
