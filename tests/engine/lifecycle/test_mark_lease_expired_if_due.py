"""One named lease is taken back, if it ran out."""

from collections.abc import Awaitable, Callable

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.mark_lease_expired_if_due import (
    LeaseMarkedExpired,
    LeaseNotExpired,
    NotExpiredReason,
    mark_lease_expired_if_due,
)
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.errors import ExecutionNotActive
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy
from flowfabric.states import PublicState
from flowfabric.testing import Clock
from tests import given
from tests.engine import controls
from tests.engine.grants import granted
from tests.engine.grants.granted import unchanged

Another = Callable[[], Awaitable[Connection]]
BACK = "runnable/eligible_now/waiting_for_worker/none/attempt_interrupted → waiting"
FAILED = "terminal/not_applicable/none/failed/attempt_terminal → failed"


async def test_a_lease_that_ran_out_goes_back_as_a_sweep_would_take_it(
    db: Connection, clock: Clock
) -> None:
    swept, marked = await given.claimed(db, ttl=30), await given.claimed(db, ttl=31)
    await clock.advance(30)
    await expire_leases(db, limit=10)
    await clock.advance(1)

    answer = await mark_lease_expired_if_due(db, marked.execution_id)

    assert answer == LeaseMarkedExpired(
        execution_id=marked.execution_id, public_state=PublicState.WAITING
    )
    assert await given.standing(db, marked.execution_id) == BACK
    assert await given.lease_events(db, marked.execution_id) == [
        ("acquired", None),
        ("expired", None),
    ]
    assert await given.completion_events(db, marked.execution_id) == []
    ours = {"execution_id", "partition_key", "created_at_ms", "last_mutation_at_ms", "lease_id"}
    rows = [await given.row(db, lease.execution_id) for lease in (swept, marked)]
    assert {name for name in rows[0] if rows[0][name] != rows[1][name]} <= ours
    [attempt] = await given.attempts(db, marked.execution_id)
    assert attempt == attempt | {
        "outcome": "lease_expired_reclaimable",
        "lease_epoch": marked.lease_epoch,
        "ended_at_ms": await clock.now_ms(),
    }


async def test_the_dead_workers_handle_no_longer_passes(db: Connection, clock: Clock) -> None:
    lease = await granted.lost(db, clock)
    await mark_lease_expired_if_due(db, lease.execution_id)

    [late] = await complete(db, [Completion(lease)])

    assert isinstance(late, ExecutionNotActive)
    assert late.lease_epoch == lease.lease_epoch + 1


async def test_at_the_cap_of_its_policy_it_ends(db: Connection, clock: Clock) -> None:
    lease = await granted.lost(db, clock, policy=ExecutionPolicy(max_reclaim_count=0))

    answer = await mark_lease_expired_if_due(db, lease.execution_id)

    assert answer == LeaseMarkedExpired(
        execution_id=lease.execution_id, public_state=PublicState.FAILED
    )
    assert await given.standing(db, lease.execution_id) == FAILED
    stored = await given.row(db, lease.execution_id)
    assert (stored["failure_reason"], stored["failure_category"]) == (
        "max_reclaims_exceeded",
        "infra_crash",
    )
    assert await given.completion_events(db, lease.execution_id) == ["failed"]


@pytest.mark.parametrize(("policys", "given_cap", "state"), [(0, 1, BACK), (9, 0, FAILED)])
async def test_a_cap_that_is_given_counts_instead_of_the_policys(
    db: Connection, clock: Clock, policys: int, given_cap: int, state: str
) -> None:
    lease = await granted.lost(db, clock, policy=ExecutionPolicy(max_reclaim_count=policys))

    await mark_lease_expired_if_due(db, lease.execution_id, max_reclaim_count=given_cap)

    assert await given.standing(db, lease.execution_id) == state


async def test_an_execution_that_does_not_exist_is_no_error(db: Connection) -> None:
    execution_id = ExecutionId.mint()

    assert await mark_lease_expired_if_due(db, execution_id) == LeaseNotExpired(
        execution_id=execution_id, reason=NotExpiredReason.EXECUTION_NOT_FOUND
    )


@pytest.mark.parametrize("state", [*controls.RUNNABLE, *controls.TERMINAL])
async def test_what_is_not_active_has_no_lease(db: Connection, clock: Clock, state: str) -> None:
    execution_id = await controls.execution(db, state)
    await clock.advance(3600)

    async with unchanged(db):
        answer = await mark_lease_expired_if_due(db, execution_id)

    assert isinstance(answer, LeaseNotExpired)
    assert answer.reason is NotExpiredReason.NOT_ACTIVE


async def test_a_lease_in_its_last_millisecond_is_left_alone(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=30)
    await clock.advance(29.999)

    async with unchanged(db):
        answer = await mark_lease_expired_if_due(db, lease.execution_id)

    assert isinstance(answer, LeaseNotExpired)
    assert answer.reason is NotExpiredReason.NOT_YET_EXPIRED


async def test_a_second_call_finds_nothing_to_take_back(db: Connection, clock: Clock) -> None:
    lease = await granted.lost(db, clock)
    await mark_lease_expired_if_due(db, lease.execution_id)

    async with unchanged(db):
        answer = await mark_lease_expired_if_due(db, lease.execution_id)

    assert isinstance(answer, LeaseNotExpired)
    assert answer.reason is NotExpiredReason.NOT_ACTIVE


def test_the_reasons_have_the_words_of_the_interface() -> None:
    assert [reason.value for reason in NotExpiredReason] == [
        "execution_not_found",
        "not_active",
        "unowned",
        "not_yet_expired",
    ]


async def test_a_renewal_that_holds_the_row_saves_the_lease(
    db: Connection, clock: Clock, another: Another
) -> None:
    lease = await given.claimed(db, ttl=30)
    first, second = await another(), await another()
    async with first.transaction():
        assert await renew(first, [lease], ttl=60) == [None]
        await clock.advance(31)
        call = mark_lease_expired_if_due(second, lease.execution_id)
        waiting = await given.blocked(db, second, call)

    answer = await waiting
    assert isinstance(answer, LeaseNotExpired)
    assert answer.reason is NotExpiredReason.NOT_YET_EXPIRED
