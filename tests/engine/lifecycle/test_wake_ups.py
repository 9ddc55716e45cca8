"""Wake-ups: a change signals once those that wait for it, and nobody else."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from flowfabric.db.listen import CHANNEL
from flowfabric.db.rows import Connection
from flowfabric.db.waiter import WAITING_FOR, deregister, register
from flowfabric.engine.lifecycle.cancel import Cancellation, cancel
from flowfabric.engine.lifecycle.claim import Claimant, claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.delay import DelayRequest, delay
from flowfabric.engine.lifecycle.expire_attempts import expire_attempts
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.progress import progress
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.engine.lifecycle.revoke import revoke
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.policy import ExecutionPolicy, FixedBackoff, RetryPolicy, TimeoutPolicy
from flowfabric.states import TerminalOutcome
from flowfabric.testing import Clock
from tests import given

CALLS = "SELECT coalesce(sum(calls), 0) FROM pg_stat_xact_user_functions WHERE funcname = 'wake'"
TOPICS = ["lane:default", "lane:other", "completion"]


class Ear:
    """What was notified so far; a mark of its own, sent last, tells that nothing is on its way."""

    def __init__(self, db: Connection) -> None:
        self._db = db
        self._heard: asyncio.Queue[str] = asyncio.Queue()
        self._marks = itertools.count()

    def hear(self, _conn: object, _pid: int, _channel: str, topic: object) -> None:
        self._heard.put_nowait(str(topic))

    async def heard(self) -> list[str]:
        """The topics notified since the last call, sorted."""
        mark = f"mark {next(self._marks)}"
        await self._db.execute("SELECT pg_notify($1, $2)", CHANNEL, mark)
        topics: list[str] = []
        async with asyncio.timeout(10):
            while (topic := await self._heard.get()) != mark:
                topics.append(topic)
        return sorted(topics)


@pytest.fixture
async def ear(db: Connection, direct: Callable[[], Awaitable[Connection]]) -> AsyncGenerator[Ear]:
    listener, ear = await direct(), Ear(db)
    await listener.add_listener(CHANNEL, ear.hear)
    yield ear
    await listener.remove_listener(CHANNEL, ear.hear)


@pytest.fixture
async def awaited(db: Connection, clock: Clock) -> None:
    """Somebody waits for everything; the clock stands, so it waits for the whole test."""
    await register(db, "somebody", TOPICS)


async def test_nobody_waits_nobody_is_notified(db: Connection, ear: Ear, clock: Clock) -> None:
    lease = await given.claimed(db)
    await release(db, [lease])
    [task] = await claim(db, given.WORKER, ttl=30)
    await complete(db, [Completion(task.lease)])
    await given.created(db, delay=1)
    await clock.advance(1)
    await promote_due(db, limit=10)

    assert await ear.heard() == []


async def test_a_creation_rings_its_lane(db: Connection, ear: Ear, awaited: None) -> None:
    await given.created(db, lane_id="other")

    assert await ear.heard() == ["lane:other"]


async def test_a_batch_rings_each_lane_once(db: Connection, ear: Ear, awaited: None) -> None:
    lanes = ("default", "other", "unawaited")
    await create_execution(
        db, [given.new(lane_id=lanes[n % 3], execution_kind=f"k{n}") for n in range(30)]
    )

    assert await ear.heard() == ["lane:default", "lane:other"]


async def test_a_submission_from_sql_rings_its_lane(
    db: Connection, ear: Ear, awaited: None
) -> None:
    await db.fetchval("SELECT ff.submit('job', lane => 'other')")

    assert await ear.heard() == ["lane:other"]


async def test_a_creation_rings_when_it_is_committed_and_only_then(
    db: Connection, ear: Ear, awaited: None, another: Callable[[], Awaitable[Connection]]
) -> None:
    creator = await another()
    undone = creator.transaction()
    await undone.start()
    await given.created(creator)
    assert await ear.heard() == []
    await undone.rollback()
    assert await ear.heard() == []

    async with creator.transaction():
        await given.created(creator)
        await given.created(creator)
        assert await ear.heard() == []

    assert await ear.heard() == ["lane:default"]


async def test_a_creation_for_later_rings_nobody(db: Connection, ear: Ear, awaited: None) -> None:
    await given.created(db, delay=60)

    assert await ear.heard() == []


async def test_a_duplicate_rings_nobody(db: Connection, ear: Ear, awaited: None) -> None:
    new = given.new()
    await create_execution(db, [new])
    await ear.heard()

    await create_execution(db, [new])

    assert await ear.heard() == []


async def test_a_waiter_for_another_lane_is_not_woken(db: Connection, ear: Ear) -> None:
    await register(db, "somebody", ["lane:other", "lane:default2", "lane:"])

    await given.created(db)

    assert await ear.heard() == []


async def test_a_waiter_that_left_is_not_woken(db: Connection, ear: Ear) -> None:
    await register(db, "somebody", TOPICS)
    await deregister(db, "somebody")

    await given.created(db)

    assert await ear.heard() == []


async def test_a_waiter_is_woken_until_its_time_is_over(
    db: Connection, ear: Ear, clock: Clock
) -> None:
    await register(db, "somebody", TOPICS)
    await clock.advance(WAITING_FOR - 0.001)
    await given.created(db)
    assert await ear.heard() == ["lane:default"]

    await clock.advance(0.001)
    await given.created(db)

    assert await ear.heard() == []


async def test_waiting_again_lengthens_the_time(db: Connection, ear: Ear, clock: Clock) -> None:
    await register(db, "somebody", TOPICS)
    await clock.advance(WAITING_FOR - 1)
    await register(db, "somebody", TOPICS)
    await clock.advance(WAITING_FOR - 1)

    await given.created(db)

    assert await ear.heard() == ["lane:default"]


async def test_one_of_two_waiters_leaving_leaves_the_other(db: Connection, ear: Ear) -> None:
    await register(db, "first", TOPICS)
    await register(db, "second", TOPICS)
    await deregister(db, "first")

    await given.created(db)

    assert await ear.heard() == ["lane:default"]


async def test_a_promotion_rings_each_lane_once(db: Connection, ear: Ear, clock: Clock) -> None:
    for lane in ("default", "default", "other", "unawaited"):
        await given.created(db, delay=1, lane_id=lane)
    await clock.advance(1)
    await register(db, "somebody", TOPICS)

    await promote_due(db, limit=10)

    assert await ear.heard() == ["lane:default", "lane:other"]


async def test_a_promotion_of_nothing_rings_nobody(
    db: Connection, ear: Ear, clock: Clock, awaited: None
) -> None:
    await promote_due(db, limit=10)

    assert await ear.heard() == []


AT_ONCE = given.retrying(backoff=FixedBackoff(delay=0))


async def test_what_makes_work_claimable_rings_its_lane(
    db: Connection, ear: Ear, clock: Clock
) -> None:
    slow = ExecutionPolicy(
        timeout_policy=TimeoutPolicy(attempt_timeout=0.001), retry_policy=AT_ONCE.retry_policy
    )
    one = await given.claimed(db)
    two = await given.claimed(db, policy=AT_ONCE)
    await given.claimed(db, ttl=600, policy=slow)
    await given.claimed(db, ttl=1)
    await register(db, "somebody", TOPICS)

    await release(db, [one])
    assert await ear.heard() == ["lane:default"]
    await fail(db, [Failure(lease=two, reason="boom")])
    assert await ear.heard() == ["lane:default"]
    await clock.advance(1)
    await expire_attempts(db, limit=10)
    assert await ear.heard() == ["lane:default"]
    await expire_leases(db, limit=10)
    assert await ear.heard() == ["lane:default"]


async def test_what_ends_an_execution_rings_for_those_who_wait_for_ends(
    db: Connection, ear: Ear, clock: Clock
) -> None:
    one, two, three = [await given.claimed(db) for _ in range(3)]
    four = await given.claimed(db)
    await given.claimed(
        db, ttl=600, policy=ExecutionPolicy(timeout_policy=TimeoutPolicy(attempt_timeout=0.001))
    )
    await given.claimed(db, ttl=1, policy=ExecutionPolicy(max_reclaim_count=0))
    await given.created(db, deadline=1, lane_id="elsewhere")
    await register(db, "somebody", ["completion"])

    await complete(db, [Completion(one)])
    assert await ear.heard() == ["completion"]
    await fail(db, [Failure(lease=two, reason="boom")])
    assert await ear.heard() == ["completion"]
    await cancel(db, [Cancellation(three, "no")])
    assert await ear.heard() == ["completion"]
    await cancel_execution(db, four.execution_id, reason="no")
    assert await ear.heard() == ["completion"]
    await clock.advance(1)
    await expire_attempts(db, limit=10)
    assert await ear.heard() == ["completion"]
    await expire_leases(db, limit=10)
    assert await ear.heard() == ["completion"]
    await expire_executions(db, limit=10)
    assert await ear.heard() == ["completion"]


async def test_a_decision_that_ends_leases_wakes_their_holders_and_a_holder_never_wakes_itself(
    db: Connection, ear: Ear, clock: Clock
) -> None:
    ended, revoked, done, failed, left = [await given.claimed(db) for _ in range(5)]
    await given.created(db)
    await claim(db, given.OTHER, ttl=1)
    await given.claimed(
        db, ttl=600, policy=ExecutionPolicy(timeout_policy=TimeoutPolicy(attempt_timeout=0.001))
    )
    await given.claimed(db, ttl=600, deadline=2)
    await register(db, "somebody", ["worker:w-1", "worker:w-2"])

    await cancel_execution(db, (await given.created(db)), reason="nobody runs it")
    await complete(db, [Completion(done)])
    await fail(db, [Failure(lease=failed, reason="boom")])
    await release(db, [left])
    assert await ear.heard() == []
    await terminalize(db, [ended.execution_id], outcome=TerminalOutcome.CANCELLED, reason="no")
    assert await ear.heard() == ["worker:w-1"]
    await revoke(db, [revoked.execution_id])
    assert await ear.heard() == ["worker:w-1"]
    await clock.advance(1)
    await expire_attempts(db, limit=10)
    assert await ear.heard() == ["worker:w-1"]
    await expire_leases(db, limit=10)
    assert await ear.heard() == ["worker:w-2"]
    await clock.advance(1)
    await expire_executions(db, limit=10)
    assert await ear.heard() == ["worker:w-1"]


async def test_many_ends_in_one_call_ring_once(db: Connection, ear: Ear, awaited: None) -> None:
    await create_execution(db, [given.new() for _ in range(20)])
    tasks = await claim(db, given.WORKER, ttl=30, limit=20)
    await ear.heard()

    await complete(db, [Completion(task.lease) for task in tasks])

    assert await ear.heard() == ["completion"]


async def test_what_changes_nothing_for_others_rings_nobody(
    db: Connection, ear: Ear, awaited: None
) -> None:
    lease = await given.claimed(db)
    resting = await given.claimed(db)
    failing = await given.claimed(db, policy=given.retrying())
    done = await given.claimed(db)
    await complete(db, [Completion(done)])
    cancelled = await given.created(db)
    await cancel_execution(db, cancelled, reason="no")
    await ear.heard()

    await renew(db, [lease], ttl=30)
    await progress(db, lease, percent=1)
    await delay(db, [DelayRequest(lease=resting, delay=60)])
    await fail(db, [Failure(lease=failing, reason="boom")])  # waits for its backoff
    await complete(db, [Completion(done)])  # answered again
    await release(db, [done])  # refused
    await cancel_execution(db, cancelled, reason="again")
    await claim(db, given.OTHER, ttl=30)
    await expire_leases(db, limit=10)

    assert await ear.heard() == []


async def test_a_statement_asks_once_for_each_topic_however_many_rows_it_writes(
    db: Connection, clock: Clock
) -> None:
    """Postgres folds equal notifications of a transaction, so the calls themselves are counted."""
    lanes = ("default", "other")
    claimant = Claimant(worker_id="w", worker_instance_id="w-1", lanes=lanes)
    policy = ExecutionPolicy(retry_policy=RetryPolicy(max_retries=9, backoff=FixedBackoff(delay=0)))
    await create_execution(
        db, [given.new(lane_id=lanes[n % 2], delay=1, policy=policy) for n in range(20)]
    )
    await clock.advance(1)
    await db.execute("SET track_functions = 'pl'")
    asked: dict[str, int] = {}

    async def leases() -> list[Lease]:
        return [task.lease for task in await claim(db, claimant, ttl=30, limit=20)]

    async with db.transaction():

        async def ask(name: str, call: Awaitable[object]) -> None:
            before = await db.fetchval(CALLS)
            await call
            asked[name] = await db.fetchval(CALLS) - before

        await ask("promote_due", promote_due(db, limit=100))
        await ask("promote_due again", promote_due(db, limit=100))
        await ask("claim", claim(db, claimant, ttl=1, limit=20))
        await clock.advance(1)
        await ask("expire_leases", expire_leases(db, limit=100))
        held = await leases()
        await ask("release", release(db, held))
        await ask("release again", release(db, held))
        held = await leases()
        await ask("retry", fail(db, [Failure(lease=each, reason="x") for each in held]))
        held = await leases()
        await ask("delay", delay(db, [DelayRequest(lease=each, delay=60) for each in held[:4]]))
        await ask("complete", complete(db, [Completion(each) for each in held[4:]]))
        await ask("complete again", complete(db, [Completion(each) for each in held[4:]]))
        await ask("claim nothing", claim(db, claimant, ttl=1, limit=20))

    assert asked == {
        "promote_due": 2,  # two lanes
        "promote_due again": 0,
        "claim": 1,  # readers of leases
        "expire_leases": 5,  # both lanes, readers of leases and streams, and the worker
        "release": 4,
        "release again": 0,
        "retry": 4,
        "delay": 2,
        "complete": 1,
        "complete again": 0,
        "claim nothing": 0,
    }
