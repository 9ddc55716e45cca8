"""active → terminal(success)."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.get_execution_result import get_execution_result
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.release import release
from flowfabric.errors import ExecutionNotActive
from flowfabric.policy import FixedBackoff
from flowfabric.states import PublicState
from flowfabric.testing import Clock
from tests import given

Another = Callable[[], Awaitable[Connection]]


async def test_a_held_execution_completes_with_its_result(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, tags={"cairn.instance_id": "i-1"})
    claimed_at = await clock.now_ms()
    await clock.advance(5)

    [done] = await complete(db, [Completion(lease, b"42")])

    assert done == Completed(execution_id=lease.execution_id)
    assert await given.vector(db, lease.execution_id) == (
        "terminal",
        "not_applicable",
        "none",
        "success",
        "attempt_terminal",
        "completed",
    )
    stored, now = await given.row(db, lease.execution_id), await clock.now_ms()
    assert stored == stored | {
        "ownership_state": "unowned",
        "terminal_at_ms": now,
        "last_mutation_at_ms": now,
        "started_at_ms": claimed_at,
        "lease_epoch": lease.lease_epoch,
        "attempt_index": 0,
        "total_attempt_count": 1,
        "worker_id": None,
        "worker_instance_id": None,
        "lease_expires_at_ms": None,
        "failure_reason": None,
        "cancellation_reason": None,
    }
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("revoked", "completed"),
    ]
    assert await given.completion_events(db, lease.execution_id) == ["success"]
    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt == attempt | {
        "attempt_index": 0,
        "attempt_type": "initial",
        "outcome": "success",
        "result": b"42",
        "lease_id": lease.lease_id,
        "lease_epoch": lease.lease_epoch,
        "worker_id": "w",
        "worker_instance_id": "w-1",
        "started_at_ms": claimed_at,
        "ended_at_ms": now,
        "failure_reason": None,
    }


async def test_the_events_carry_what_subscribers_filter_by(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, tags={"cairn.instance_id": "i-1"})
    await clock.advance(5)

    await complete(db, [Completion(lease)])

    stored, now = await given.row(db, lease.execution_id), await clock.now_ms()
    common = {
        "route_id": stored["route_id"],
        "occurred_at_ms": now,
        "partition_key": lease.execution_id.partition_key,
        "tags": '{"cairn.instance_id": "i-1"}',
    }
    [ended] = await db.fetch("SELECT * FROM ff.completion_event")
    assert dict(ended) == dict(ended) | common | {"flow_id": None, "dispatched_at_ms": None}
    released = (await given.lease_history(db, lease.execution_id))[-1]
    assert released == released | common | {
        "lease_id": lease.lease_id,
        "lease_epoch": lease.lease_epoch,
        "attempt_index": 0,
        "worker_instance_id": "w-1",
    }


async def test_a_result_may_be_nothing_or_empty_or_binary(db: Connection) -> None:
    results = [None, b"", b"\x00\xff", b"x" * 1_000_000]
    for result in results:
        lease = await given.claimed(db)
        await complete(db, [Completion(lease, result)])

        assert await get_execution_result(db, lease.execution_id) == result


async def test_the_last_attempts_result_counts_and_earlier_failures_are_forgotten(
    db: Connection,
) -> None:
    lease = await given.claimed(db, policy=given.retrying(backoff=FixedBackoff(delay=0)))
    await fail(db, [Failure(lease=lease, reason="boom")])
    [retry] = await claim(db, given.WORKER, ttl=30)

    await complete(db, [Completion(retry.lease, b"at last")])

    assert await get_execution_result(db, lease.execution_id) == b"at last"
    stored = await given.row(db, lease.execution_id)
    assert (stored["failure_reason"], stored["failure_category"]) == (None, None)
    ledger = await given.attempts(db, lease.execution_id)
    assert [(a["attempt_index"], a["outcome"], a["failure_reason"]) for a in ledger] == [
        (0, "retry", "boom"),
        (1, "success", None),
    ]


async def test_an_attempt_that_was_interrupted_has_one_line_in_the_ledger(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db)
    began = await clock.now_ms()
    await clock.advance(5)
    await release(db, [lease])
    [task] = await claim(db, given.OTHER, ttl=30)
    await clock.advance(5)

    await complete(db, [Completion(task.lease, b"42")])

    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt == attempt | {
        "outcome": "success",
        "started_at_ms": began,
        "ended_at_ms": await clock.now_ms(),
        "worker_instance_id": "w-2",
        "lease_epoch": task.lease.lease_epoch,
        "result": b"42",
    }


async def test_a_lease_that_expired_cannot_complete(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=30)
    await clock.advance(timedelta(seconds=31))
    await expire_leases(db, limit=10)

    [refused] = await complete(db, [Completion(lease, b"late")])

    assert isinstance(refused, ExecutionNotActive)
    assert await given.public_state(db, lease.execution_id) is PublicState.WAITING


async def test_a_hundred_complete_in_one_call(db: Connection) -> None:
    await create_execution(db, [given.new(input_payload=b"%d" % n) for n in range(100)])
    tasks = await claim(db, given.WORKER, ttl=30, limit=100)

    answers = await complete(db, [Completion(task.lease, task.input_payload) for task in tasks])

    assert answers == [Completed(execution_id=task.lease.execution_id) for task in tasks]
    for task in tasks[::17]:
        assert await get_execution_result(db, task.lease.execution_id) == task.input_payload
    assert await db.fetchval("SELECT count(*) FROM ff.completion_event") == 100
    assert await db.fetchval("SELECT count(DISTINCT execution_id) FROM ff.completion_event") == 100


async def test_a_completion_that_lost_the_race_against_itself_is_answered_again(
    db: Connection, another: Another
) -> None:
    lease = await given.claimed(db)
    first, second = await another(), await another()
    async with first.transaction():
        await complete(first, [Completion(lease, b"first")])
        waiting = await given.blocked(db, second, complete(second, [Completion(lease, b"second")]))

    assert await waiting == [Completed(execution_id=lease.execution_id, repeated=True)]
    assert await get_execution_result(db, lease.execution_id) == b"first"
    assert await given.completion_events(db, lease.execution_id) == ["success"]


async def test_a_completion_that_is_rolled_back_never_was(db: Connection) -> None:
    lease = await given.claimed(db)
    before = await given.everything(db)
    transaction = db.transaction()
    await transaction.start()
    await complete(db, [Completion(lease, b"42")])

    await transaction.rollback()

    assert await given.everything(db) == before
