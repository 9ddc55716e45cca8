"""A stream is closed by what ends its attempt, with a reason that says how."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from flowfabric.conditions import OperatorOnly
from flowfabric.db.rows import Connection
from flowfabric.db.waiter import register
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.cancel import Cancellation
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.delay import DelayRequest
from flowfabric.engine.lifecycle.expire_attempts import expire_attempts
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.streams.reader import TOPICS
from flowfabric.engine.suspensions.suspension import SuspendRequest
from flowfabric.instants import instant
from flowfabric.policy import ExecutionPolicy, RetryPolicy, TimeoutPolicy
from flowfabric.states import TimeoutBehavior
from flowfabric.testing import Clock
from tests import given
from tests.db.facts import until
from tests.engine.controls import Another
from tests.engine.flows.graphs import empty
from tests.engine.grants import granted
from tests.engine.streams.streams import appended, frame, page, texts

HOUR = timedelta(hours=1)
POLICY = ExecutionPolicy(
    retry_policy=RetryPolicy(max_retries=1),
    timeout_policy=TimeoutPolicy(attempt_timeout=600, execution_deadline=7200),
)
End = Callable[[Engine, Connection, Clock, Lease], Awaitable[Any]]


async def completes(engine: Engine, _db: Connection, _clock: Clock, lease: Lease) -> None:
    await engine.complete([Completion(lease)])


async def fails(engine: Engine, _db: Connection, _clock: Clock, lease: Lease) -> None:
    await engine.fail([Failure(lease=lease, reason="no", category="permanent")])


async def fails_and_is_retried(
    engine: Engine, _db: Connection, _clock: Clock, lease: Lease
) -> None:
    await engine.fail([Failure(lease=lease, reason="no")])


async def is_cancelled(engine: Engine, _db: Connection, _clock: Clock, lease: Lease) -> None:
    await engine.cancel_execution(lease.execution_id, reason="test", actor="test")


async def cancels_itself(engine: Engine, _db: Connection, _clock: Clock, lease: Lease) -> None:
    await engine.cancel([Cancellation(lease, "test")])


async def loses_its_lease(_engine: Engine, db: Connection, clock: Clock, _lease: Lease) -> None:
    await clock.advance(timedelta(seconds=31))
    assert await expire_leases(db, 10) == 1


async def is_reclaimed(engine: Engine, db: Connection, clock: Clock, lease: Lease) -> None:
    await granted.keyed(db)
    await loses_its_lease(engine, db, clock, lease)
    await granted.reclaim_granted(db, lease.execution_id)
    await granted.reclaim_it(db, lease.execution_id)


async def times_out(engine: Engine, db: Connection, clock: Clock, lease: Lease) -> None:
    await clock.advance(timedelta(seconds=20))
    await engine.renew([lease], ttl=3600)
    await clock.advance(timedelta(seconds=600))
    assert await expire_attempts(db, 10) == 1


async def misses_its_deadline(engine: Engine, db: Connection, clock: Clock, lease: Lease) -> None:
    await engine.renew([lease], ttl=86400)
    await clock.advance(3 * HOUR)
    async with db.transaction():
        assert await expire_executions(db, 10) == 1


async def restarts(engine: Engine, _db: Connection, _clock: Clock, lease: Lease) -> None:
    await engine.restart_execution(lease, payload=b"{}", payload_encoding="json")


def suspension(behavior: TimeoutBehavior) -> End:
    async def times_out_suspended(
        engine: Engine, _db: Connection, clock: Clock, lease: Lease
    ) -> None:
        request = SuspendRequest(
            lease=lease,
            condition=OperatorOnly(),
            keeps_waitpoints=True,
            timeout_at=instant(await clock.now_ms() + 60_000),
            timeout_behavior=behavior,
        )
        await engine.suspend([request])
        await clock.advance(timedelta(seconds=61))
        await engine.expire_suspension(lease.execution_id)

    return times_out_suspended


ENDS: dict[str, tuple[End, str]] = {
    "complete": (completes, "attempt_success"),
    "fail": (fails, "attempt_failure"),
    "retry": (fails_and_is_retried, "attempt_failure"),
    "cancel": (is_cancelled, "attempt_cancelled"),
    "cancel by the worker": (cancels_itself, "attempt_cancelled"),
    "lease expiry": (loses_its_lease, "lease_expired"),
    "reclaim": (is_reclaimed, "reclaimed"),
    "attempt timeout": (times_out, "expired"),
    "deadline": (misses_its_deadline, "expired"),
    "restart": (restarts, "restarted"),
    "suspension fails": (suspension(TimeoutBehavior.FAIL), "suspension_timeout"),
    "suspension cancels": (suspension(TimeoutBehavior.CANCEL), "suspension_timeout"),
    "suspension expires": (suspension(TimeoutBehavior.EXPIRE), "suspension_timeout"),
}


@pytest.mark.parametrize(("end", "reason"), ENDS.values(), ids=ENDS.keys())
async def test_an_ending_closes_the_stream(
    end: End, reason: str, db: Connection, clock: Clock, ff_engine: Engine
) -> None:
    lease = await given.claimed(db, policy=POLICY)
    await appended(db, lease, frame("last words"))
    assert (await page(db, lease)).closed_reason is None

    await end(ff_engine, db, clock, lease)

    found = await page(db, lease)
    assert found.closed_reason == reason
    assert found.closed_at == instant(await clock.now_ms())
    assert [each.text for each in found.frames] == ["last words"]
    unwritten = await page(db, lease, attempt_index=3)
    assert (unwritten.closed_at, unwritten.closed_reason) == (None, None)


@pytest.mark.session("listens")
@pytest.mark.parametrize("end", [end for end, _ in ENDS.values()], ids=ENDS.keys())
async def test_an_ending_notifies_the_readers_of_the_stream(
    end: End, db: Connection, clock: Clock, ff_engine: Engine, another: Another
) -> None:
    lease = await given.claimed(db, policy=POLICY)
    await appended(db, lease, frame("last words"))
    heard: list[str] = []
    listening = await another()
    await listening.add_listener("ff_wake", lambda *told: heard.append(told[-1]))
    await register(db, "reader", list(TOPICS))
    await db.execute("UPDATE ff.waiter SET waiting_until_ms = waiting_until_ms + 86400000")

    await end(ff_engine, db, clock, lease)

    async def is_told() -> bool:  # some notifications are sent a moment later
        await listening.execute("SELECT")
        return bool(set(heard) & set(TOPICS))

    await until(is_told)


async def test_an_attempt_that_ended_without_a_frame_has_no_stream_and_is_open(
    db: Connection, ff_engine: Engine
) -> None:
    lease = await given.claimed(db)
    await ff_engine.complete([Completion(lease)])

    async with asyncio.timeout(20):  # a tail does not wait for what cannot come
        tailed = await ff_engine.tail_stream(lease.execution_id, 0, block=30)

    assert (tailed.frames, tailed.closed_at, tailed.closed_reason) == ([], None, None)
    assert tailed.ended
    assert await db.fetchval("SELECT count(*) FROM ff.stream_meta") == 0


@pytest.mark.parametrize("waits", ["released", "delayed", "suspended"])
@pytest.mark.parametrize(
    ("way", "reason"), [("skipped", "dependency_impossible"), ("cancelled", "attempt_cancelled")]
)
async def test_an_ending_closes_the_stream_of_an_attempt_that_was_to_go_on(
    waits: str, way: str, reason: str, db: Connection, clock: Clock, ff_engine: Engine
) -> None:
    graph = await empty(ff_engine, "up", "down")
    [lease] = await graph.claim("down", ttl=600)
    await appended(db, lease, frame("last words"))
    match waits:
        case "released":
            await ff_engine.release([lease])
        case "delayed":
            await ff_engine.delay([DelayRequest(lease=lease, delay=60.0)])
        case _:
            await ff_engine.suspend(
                [SuspendRequest(lease=lease, condition=OperatorOnly(), keeps_waitpoints=True)]
            )
    assert (await page(db, lease)).closed_at is None
    await clock.advance(timedelta(seconds=5))

    if way == "skipped":
        await graph.link("up>down")
        await graph.fail("up")
        await graph.carry_all()
    else:
        await ff_engine.cancel_flow(graph.flow_id)

    assert await given.public_state(db, graph["down"]) == way
    found = await page(db, lease)
    assert found.closed_reason == reason
    assert found.closed_at == instant(await clock.now_ms())


async def test_an_attempt_that_goes_on_appends_to_the_same_stream(
    db: Connection, clock: Clock, ff_engine: Engine
) -> None:
    lease = await given.claimed(db)
    await appended(db, lease, frame("1"))

    for end in ("suspend", "delay", "release", "expire"):
        match end:
            case "suspend":
                await ff_engine.suspend(
                    [SuspendRequest(lease=lease, condition=OperatorOnly(), keeps_waitpoints=True)]
                )
                await ff_engine.resume_execution(lease.execution_id, actor="test")
            case "delay":
                await ff_engine.delay([DelayRequest(lease=lease, delay=0.0)])
            case "release":
                await ff_engine.release([lease])
            case _:
                await loses_its_lease(ff_engine, db, clock, lease)
                assert (await page(db, lease)).closed_reason == "lease_expired"
        assert ((await page(db, lease)).closed_at is None) is (end != "expire")
        await promote_due(db, 10)
        [again] = await claim(db, given.OTHER, ttl=30)
        lease = again.lease
        await appended(db, lease, frame(end))
        assert (await page(db, lease)).closed_reason is None

    assert await texts(db, lease) == ["1", "suspend", "delay", "release", "expire"]
    assert lease.attempt_index == 0


async def test_retention_deletes_the_whole_stream(db: Connection, ff_engine: Engine) -> None:
    lease = await given.claimed(db)
    await appended(db, lease, frame("x"))
    await ff_engine.complete([Completion(lease)])
    partition, uuid = lease.execution_id.partition_key, lease.execution_id.uuid

    assert (
        await db.fetchval(
            "SELECT ff.delete_executions(ARRAY[$1::smallint], ARRAY[$2::uuid])", partition, uuid
        )
        == 1
    )

    for table in ("stream_frame", "stream_meta", "stream_summary"):
        assert await db.fetchval(f"SELECT count(*) FROM ff.{table}") == 0
