"""any non-terminal → terminal(expired): deadlines that passed."""

from collections.abc import Awaitable, Callable

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.errors import ExecutionNotActive
from flowfabric.policy import ExecutionPolicy, TimeoutPolicy
from flowfabric.testing import Clock
from tests import given

Another = Callable[[], Awaitable[Connection]]


async def test_what_waits_past_its_deadline_expires(db: Connection, clock: Clock) -> None:
    execution_id = await given.created(db, deadline=60)
    await clock.advance(60)

    assert await expire_executions(db, limit=10) == 1

    assert await given.standing(db, execution_id) == (
        "terminal/not_applicable/none/expired/pending_first_attempt → expired"
    )
    stored, now = await given.row(db, execution_id), await clock.now_ms()
    assert stored == stored | {
        "failure_reason": "execution_deadline",
        "terminal_at_ms": now,
        "last_mutation_at_ms": now,
        "deadline_at_ms": now,
        "lease_epoch": 0,
    }
    assert await given.completion_events(db, execution_id) == ["expired"]
    assert await given.lease_events(db, execution_id) == []
    assert await given.attempts(db, execution_id) == []


async def test_what_runs_past_its_deadline_expires_with_its_lease(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db, ttl=3600, deadline=60, policy=given.retrying())
    began = await clock.now_ms()
    await clock.advance(60)

    assert await expire_executions(db, limit=10) == 1

    assert await given.standing(db, lease.execution_id) == (
        "terminal/not_applicable/none/expired/attempt_terminal → expired"
    )
    stored, now = await given.row(db, lease.execution_id), await clock.now_ms()
    assert stored == stored | {
        "failure_reason": "execution_deadline",
        "worker_id": None,
        "worker_instance_id": None,
        "lease_expires_at_ms": None,
        "terminal_at_ms": now,
    }
    assert stored["lease_epoch"] > lease.lease_epoch
    assert await given.completion_events(db, lease.execution_id) == ["expired"]
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("expired", None),
    ]
    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt == attempt | {
        "outcome": "expired",
        "failure_reason": "execution_deadline",
        "started_at_ms": began,
        "ended_at_ms": now,
    }
    [late] = await complete(db, [Completion(lease)])
    assert isinstance(late, ExecutionNotActive)


@pytest.mark.parametrize("way", ["delayed", "retry", "interrupted"])
async def test_every_way_of_waiting_ends_at_the_deadline(
    db: Connection, clock: Clock, way: str
) -> None:
    if way == "delayed":
        execution_id = await given.created(db, delay=3600, deadline=60)
    else:
        lease = await given.claimed(db, deadline=60, policy=given.retrying())
        execution_id = lease.execution_id
        if way == "retry":
            await fail(db, [Failure(lease=lease, reason="boom", retry_after=3600)])
        else:
            await release(db, [lease])
    told = await given.lease_events(db, execution_id)
    await clock.advance(60)

    assert await expire_executions(db, limit=10) == 1

    assert await given.public_state(db, execution_id) == "expired"
    assert (await given.row(db, execution_id))["delay_until_ms"] is None
    assert await given.completion_events(db, execution_id) == ["expired"]
    assert await given.lease_events(db, execution_id) == told
    outcomes = [attempt["outcome"] for attempt in await given.attempts(db, execution_id)]
    assert outcomes == {"delayed": [], "retry": ["retry"], "interrupted": ["expired"]}[way]


async def test_the_policys_deadline_counts_from_the_creation(db: Connection, clock: Clock) -> None:
    policy = ExecutionPolicy(timeout_policy=TimeoutPolicy(execution_deadline=60))
    lease = await given.claimed(db, policy=policy, ttl=3600)
    await clock.advance(30)
    await release(db, [lease])
    await clock.advance(29.999)
    assert await expire_executions(db, limit=10) == 0
    await clock.advance(0.001)

    assert await expire_executions(db, limit=10) == 1


async def test_what_ended_in_time_stays_as_it_ended(db: Connection, clock: Clock) -> None:
    done = await given.claimed(db, deadline=60)
    await complete(db, [Completion(done)])
    await cancel_execution(db, await given.created(db, deadline=60), reason="no")
    await clock.advance(61)
    before = await given.everything(db)

    assert await expire_executions(db, limit=10) == 0

    assert await given.everything(db) == before


async def test_a_second_sweep_finds_nothing(db: Connection, clock: Clock) -> None:
    await given.created(db, deadline=1)
    await clock.advance(2)

    assert [await expire_executions(db, limit=10) for _ in range(2)] == [1, 0]


async def test_what_has_no_deadline_never_expires(db: Connection, clock: Clock) -> None:
    await given.created(db)
    await given.created(db, delay=10**9)
    await clock.advance(10**8)

    assert await expire_executions(db, limit=10) == 0


async def test_the_longest_overdue_go_first_up_to_the_limit(db: Connection, clock: Clock) -> None:
    ids = {seconds: await given.created(db, deadline=seconds) for seconds in (3, 1, 2)}
    await clock.advance(10)

    assert await expire_executions(db, limit=2) == 2

    states = {seconds: await given.public_state(db, made) for seconds, made in ids.items()}
    assert states == {1: "expired", 2: "expired", 3: "waiting"}


async def test_a_row_in_use_is_passed_over(db: Connection, clock: Clock, another: Another) -> None:
    lease = await given.claimed(db, ttl=3600, deadline=60)
    other = await another()
    async with other.transaction():
        await complete(other, [Completion(lease)])
        await clock.advance(61)
        assert await expire_executions(db, limit=10) == 0

    assert await given.completion_events(db, lease.execution_id) == ["success"]
