"""Work that is past its deadline never starts, and a deadline that has passed is refused."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.flows.new_flow import NewEdge, NewFlow
from flowfabric.engine.flows.submit_flow import submit_flow
from flowfabric.engine.grants.claim_for_worker import claim_for_worker
from flowfabric.engine.grants.claim_resumed_execution import claim_resumed_execution
from flowfabric.engine.grants.issue_claim_grant import issue_claim_grant
from flowfabric.engine.grants.issue_grant_and_claim import issue_grant_and_claim
from flowfabric.engine.grants.issue_reclaim_grant import issue_reclaim_grant
from flowfabric.engine.grants.reclaimable import NotReclaimable
from flowfabric.engine.joins.dispatch_completions import dispatch_completions
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.create_execution import Duplicate, create_execution
from flowfabric.engine.lifecycle.delay import DelayRequest, delay
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.errors import ExecutionNotLeaseable, ValidationError
from flowfabric.ids import ExecutionId, new_uuid, uuid_partition
from flowfabric.policy import ExecutionPolicy, FixedBackoff, TimeoutPolicy
from flowfabric.states import PublicState
from flowfabric.testing import Clock
from tests import given
from tests.engine.grants import granted
from tests.engine.grants.granted import claim_granted, claim_it, reclaim_it, unchanged

Another = Callable[[], Awaitable[Connection]]
MANY = 300


async def test_all_that_a_late_worker_finds_past_its_deadline_expires_and_none_of_it_runs(
    db: Connection, clock: Clock
) -> None:
    late = await create_execution(db, [given.new(deadline=1) for _ in range(MANY)])
    await clock.advance(4)

    started = [await claim(db, given.WORKER, ttl=30, limit=50) for _ in range(10)]
    ended = await expire_executions(db, limit=500)

    assert started == [[]] * 10
    assert ended == MANY
    for each in late:
        assert await given.public_state(db, each.execution_id) is PublicState.EXPIRED


async def test_a_claim_passes_over_what_is_past_its_deadline_to_what_is_not(
    db: Connection, clock: Clock
) -> None:
    await given.created(db, deadline=1, priority=9)
    in_time = await given.created(db, deadline=60)
    endless = await given.created(db)
    await clock.advance(4)

    claimed = await claim(db, given.WORKER, ttl=30, limit=10)

    assert [task.lease.execution_id for task in claimed] == [in_time, endless]


async def test_a_deadline_that_is_now_has_passed(db: Connection, clock: Clock) -> None:
    await given.created(db, deadline=1)
    await clock.advance(1)

    assert await claim(db, given.WORKER, ttl=30) == []


async def test_a_claim_over_several_kinds_passes_over_what_is_past_its_deadline(
    db: Connection, clock: Clock
) -> None:
    for kind in ("a", "b", "c"):
        await given.created(db, execution_kind=kind, deadline=1)
    in_time = await given.created(db, execution_kind="b")
    await clock.advance(4)

    claimed = await claim(db, given.WORKER, ttl=30, limit=10)

    assert [task.lease.execution_id for task in claimed] == [in_time]


async def test_what_replaces_locked_executions_is_not_past_its_deadline(
    db: Connection, clock: Clock, another: Another
) -> None:
    locked = await given.created(db, execution_kind="a", priority=9)
    await given.created(db, execution_kind="b", deadline=1)
    in_time = await given.created(db, execution_kind="a")
    await clock.advance(4)
    other = await another()

    async with other.transaction():
        await other.execute("SELECT FROM ff.ready WHERE execution_id = $1 FOR UPDATE", locked.uuid)
        claimed = await claim(db, given.WORKER, ttl=30)

    assert [task.lease.execution_id for task in claimed] == [in_time]


async def test_a_retry_beyond_the_deadline_expires_and_does_not_start(
    db: Connection, clock: Clock
) -> None:
    policy = given.retrying(backoff=FixedBackoff(delay=10))
    lease = await given.claimed(db, policy=policy, deadline=5)
    await fail(db, [Failure(lease=lease, reason="boom")])
    await clock.advance(10)
    await promote_due(db, limit=10)

    assert await claim(db, given.WORKER, ttl=30) == []

    await expire_executions(db, limit=10)
    assert await given.public_state(db, lease.execution_id) is PublicState.EXPIRED


async def test_a_delay_beyond_the_deadline_does_not_go_on(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, deadline=5)
    await delay(db, [DelayRequest(lease=lease, delay=10)])
    await clock.advance(10)
    await promote_due(db, limit=10)

    assert await claim(db, given.WORKER, ttl=30) == []


async def test_a_lost_lease_past_the_deadline_is_not_claimed_again(
    db: Connection, clock: Clock
) -> None:
    await given.claimed(db, ttl=3, deadline=5)
    await clock.advance(6)
    await expire_leases(db, limit=10)

    assert await claim(db, given.OTHER, ttl=30) == []


async def test_a_member_whose_upstream_ends_after_its_deadline_does_not_start(
    db: Connection, clock: Clock
) -> None:
    flow_id = new_uuid()
    home = uuid_partition(flow_id)
    first, second = (given.new(execution_id=ExecutionId(home, new_uuid())) for _ in range(2))
    second = given.new(execution_id=second.execution_id, deadline=5)
    await submit_flow(
        db,
        NewFlow(
            flow_id=flow_id,
            flow_kind="pair",
            members=[first, second],
            edges=[NewEdge(upstream=first.execution_id, downstream=second.execution_id)],
        ),
    )
    [task] = await claim(db, given.WORKER, ttl=30)
    await clock.advance(6)
    await complete(db, [Completion(task.lease)])
    async with db.transaction():
        await dispatch_completions(db)
    assert await given.public_state(db, second.execution_id) is PublicState.WAITING

    assert await claim(db, given.WORKER, ttl=30) == []


# Claims by id.


@pytest.fixture
async def key(db: Connection, clock: Clock) -> None:
    await granted.keyed(db)


async def refused_because_late(db: Connection, claims: Callable[[], Awaitable[Any]]) -> None:
    async with unchanged(db):
        with pytest.raises(ExecutionNotLeaseable, match="deadline"):
            await claims()


@pytest.mark.usefixtures("key")
async def test_a_grant_does_not_lease_what_is_past_its_deadline(
    db: Connection, clock: Clock
) -> None:
    execution_id = await given.created(db, deadline=5)
    await claim_granted(db, execution_id)
    await clock.advance(6)

    await refused_because_late(db, lambda: claim_it(db, execution_id))


@pytest.mark.usefixtures("key")
async def test_a_grant_does_not_go_on_with_what_is_past_its_deadline(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db, deadline=5)
    await delay(db, [DelayRequest(lease=lease, delay=0.001)])
    await clock.advance(1)
    await promote_due(db, limit=10)
    await claim_granted(db, lease.execution_id)
    await clock.advance(6)

    async def resumed() -> None:
        async with db.transaction():
            await claim_resumed_execution(
                db, lease.execution_id, worker_id="w", worker_instance_id="w-1", lease_ttl=30
            )

    await refused_because_late(db, resumed)


@pytest.mark.usefixtures("key")
async def test_no_grant_is_issued_for_what_is_past_its_deadline(
    db: Connection, clock: Clock
) -> None:
    execution_id = await given.created(db, deadline=5)
    await clock.advance(6)

    async def issued() -> None:
        async with db.transaction():
            await issue_claim_grant(db, execution_id, **granted.TERMS)

    await refused_because_late(db, issued)
    async with db.transaction():
        best = await claim_for_worker(
            db, lane_id="default", worker_id="w", worker_instance_id="w-1"
        )
    assert best is None


async def test_an_operator_does_not_claim_what_is_past_its_deadline(
    db: Connection, clock: Clock
) -> None:
    execution_id = await given.created(db, deadline=5)
    await clock.advance(6)

    async def operated() -> None:
        async with db.transaction():
            await issue_grant_and_claim(db, execution_id, lane_id="default", lease_ttl=30)

    await refused_because_late(db, operated)


@pytest.mark.usefixtures("key")
async def test_what_is_past_its_deadline_cannot_be_reclaimed(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=3, deadline=8)
    await clock.advance(4)
    await granted.reclaim_granted(db, lease.execution_id)
    await clock.advance(5)

    answer = await reclaim_it(db, lease.execution_id)
    async with db.transaction():
        issued = await issue_reclaim_grant(db, lease.execution_id, **granted.TERMS)

    assert isinstance(answer, NotReclaimable)
    assert "deadline" in answer.detail
    assert isinstance(issued, NotReclaimable)


# Deadlines that have passed when they are given.


async def test_a_deadline_in_the_past_is_refused_and_nothing_of_the_batch_is_created(
    db: Connection, clock: Clock
) -> None:
    past = await clock.now() - timedelta(seconds=1)

    async with unchanged(db):
        with pytest.raises(ValidationError, match=r"execution_deadline_at .* is in the past"):
            await create_execution(db, [given.new(), given.new(execution_deadline_at=past)])


@pytest.mark.parametrize("deadline", [0, -1, timedelta(seconds=-5), 0.0001])
async def test_a_deadline_without_any_time_is_refused(deadline: Any) -> None:
    with pytest.raises(ValidationError, match="deadline"):
        given.new(deadline=deadline)


async def test_a_policy_gives_every_execution_its_own_time(db: Connection, clock: Clock) -> None:
    policy = ExecutionPolicy(timeout_policy=TimeoutPolicy(execution_deadline=5))
    await given.created(db, policy=policy)
    await clock.advance(60)

    later = await given.created(db, policy=policy)

    assert (await given.row(db, later))["deadline_at_ms"] == await clock.now_ms() + 5000


async def test_a_policy_without_any_time_is_refused(db: Connection, clock: Clock) -> None:
    policy = ExecutionPolicy(timeout_policy=TimeoutPolicy(execution_deadline=0))

    async with unchanged(db):
        with pytest.raises(ValidationError, match="deadline"):
            await given.created(db, policy=policy)


async def test_a_submit_repeated_after_its_deadline_finds_what_it_created(
    db: Connection, clock: Clock
) -> None:
    new = given.new(execution_deadline_at=await clock.now() + timedelta(seconds=5))
    await create_execution(db, [new])
    await clock.advance(60)

    [again] = await create_execution(db, [new])

    assert again == Duplicate(execution_id=new.execution_id)


async def test_a_key_repeated_after_its_deadline_finds_what_it_created(
    db: Connection, clock: Clock
) -> None:
    deadline = await clock.now() + timedelta(seconds=5)
    first = await given.created(db, idempotency_key="k", execution_deadline_at=deadline)
    await clock.advance(60)

    again = await given.created(db, idempotency_key="k", execution_deadline_at=deadline)

    assert again == first


async def test_a_flow_with_a_deadline_in_the_past_is_refused_as_a_whole(
    db: Connection, clock: Clock
) -> None:
    flow_id = new_uuid()
    home = uuid_partition(flow_id)
    past = await clock.now() - timedelta(seconds=1)
    members = [
        given.new(execution_id=ExecutionId(home, new_uuid())),
        given.new(execution_id=ExecutionId(home, new_uuid()), execution_deadline_at=past),
    ]

    async with unchanged(db):
        with pytest.raises(ValidationError, match="is in the past"):
            await submit_flow(db, NewFlow(flow_id=flow_id, flow_kind="pair", members=members))


@pytest.mark.parametrize("interval", ["0", "-1 second"])
async def test_sql_refuses_a_deadline_without_any_time(db: Connection, interval: str) -> None:
    async with unchanged(db):
        with pytest.raises(Exception, match="invalid_input: deadline"):
            await db.execute(f"SELECT ff.submit('job', deadline => interval '{interval}')")
