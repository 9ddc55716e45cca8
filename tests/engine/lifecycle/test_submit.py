"""ff.submit: the same creation from plain SQL."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.create_execution import Duplicate, create_execution
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, RetryScheduled, fail
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from tests import given

Another = Callable[[], Awaitable[Connection]]
BARE = "SELECT ff.submit('job')"
KEYED = "SELECT ff.submit('job', idempotency_key => 'order-7')"


async def submitted(db: Connection, call: str = BARE, *arguments: Any) -> ExecutionId:
    return ExecutionId.parse(await db.fetchval(call, *arguments))


async def test_a_kind_is_all_that_must_be_given(db: Connection, clock: Clock) -> None:
    execution_id = await submitted(db)

    assert await given.standing(db, execution_id) == (
        "runnable/eligible_now/waiting_for_worker/none/pending_first_attempt → waiting"
    )
    stored, now = await given.row(db, execution_id), await clock.now_ms()
    assert (stored["created_at_ms"], stored["priority"]) == (now, 0)
    [task] = await claim(db, given.WORKER, ttl=30)
    assert task.lease.execution_id == execution_id
    assert (task.execution_kind, task.lane_id) == ("job", "default")
    assert (task.input_payload, task.payload_encoding, task.tags) == (b"{}", "json", {})


async def test_everything_can_be_given_by_name(db: Connection, clock: Clock) -> None:
    execution_id = await submitted(
        db,
        """SELECT ff.submit(
               kind => 'send', payload => '{"to": "ä"}', lane => 'mail', namespace => 'acme',
               priority => 7, delay => '90 seconds', deadline => '1 hour',
               idempotency_key => 'k', tags => '{"shop.tenant": "t"}',
               requires => ARRAY['gpu', 'arm', 'gpu'],
               policy => '{"retry_policy": {"max_retries": 1}}')""",
    )

    stored, now = await given.row(db, execution_id), await clock.now_ms()
    assert stored == stored | {
        "priority": 7,
        "delay_until_ms": now + 90_000,
        "deadline_at_ms": now + 3_600_000,
        "public_state": "delayed",
    }
    [route] = await db.fetch("SELECT * FROM ff.route")
    assert (route["namespace"], route["lane_id"], route["execution_kind"]) == (
        "acme",
        "mail",
        "send",
    )
    assert route["required_capabilities"] == ["arm", "gpu"]
    [body] = await db.fetch("SELECT * FROM ff.exec_body")
    assert msgspec.json.decode(body["payload"]) == {"to": "ä"}
    assert msgspec.json.decode(body["policy"]) == {"retry_policy": {"max_retries": 1}}
    assert body["creator_identity"].startswith("sql:")
    assert msgspec.json.decode(stored["tags"]) == {"shop.tenant": "t"}
    assert await db.fetchval("SELECT lane_id FROM ff.lane_registry") == "mail"


async def test_its_route_is_the_one_that_python_creates(db: Connection) -> None:
    theirs = await given.created(db, required_capabilities=("é", "b", "B"))

    ours = await submitted(db, "SELECT ff.submit('job', requires => ARRAY['B', 'é', 'b'])")

    assert (await given.row(db, ours))["route_id"] == (await given.row(db, theirs))["route_id"]


async def test_a_key_is_shared_with_python(db: Connection) -> None:
    first = await submitted(db, KEYED)

    again = await submitted(db, KEYED)
    same = given.new(idempotency_key="order-7", input_payload=b" {}", payload_encoding="json")
    [answer] = await create_execution(db, [same])

    assert again == first
    assert answer == Duplicate(execution_id=first)
    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 1


async def test_a_key_with_another_payload_is_refused_unless_the_caller_wants_the_first(
    db: Connection,
) -> None:
    first = await submitted(db, KEYED)
    other = (
        """SELECT ff.submit('work', '{"a": 1}', idempotency_key => 'order-7', on_conflict => $1)"""
    )

    with pytest.raises(asyncpg.PostgresError) as raised:
        await submitted(db, other, "error")

    assert raised.value.sqlstate == "FF002"
    assert f"'order-7' belongs to execution {first}" in str(raised.value)
    assert "with another kind and another payload" in str(raised.value)
    assert await submitted(db, other, "return") == first
    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 1


async def test_a_window_frees_a_key(db: Connection, clock: Clock) -> None:
    call = "SELECT ff.submit('job', idempotency_key => 'k', idempotency_window => '5 s')"
    first = await submitted(db, call)
    await clock.advance(4.999)
    inside = await submitted(db, call)
    await clock.advance(0.001)

    assert inside == first != await submitted(db, call)


async def test_the_policys_window_frees_a_key(db: Connection, clock: Clock) -> None:
    call = """SELECT ff.submit('job', idempotency_key => 'k',
                               policy => '{"dedup_window_ms": 5000}')"""
    first = await submitted(db, call)
    await clock.advance(4.999)
    inside = await submitted(db, call)
    await clock.advance(0.001)

    after = await submitted(db, call)

    assert inside == first != after


async def test_two_submitters_of_one_key_get_one_execution(
    db: Connection, another: Another
) -> None:
    first, second = await another(), await another()
    async with first.transaction():
        winner = await submitted(first, KEYED)
        waiting = await given.blocked(db, second, submitted(second, KEYED))

    assert await waiting == winner


async def test_the_callers_rollback_leaves_nothing(db: Connection) -> None:
    before = await given.everything(db)
    transaction = db.transaction()
    await transaction.start()
    await submitted(db, "SELECT ff.submit('job', lane => 'n', tags => '{\"a.b\": \"\"}')")

    await transaction.rollback()

    assert await given.everything(db) == before


async def test_it_is_invisible_until_the_callers_commit(db: Connection, another: Another) -> None:
    worker = await another()
    async with db.transaction():
        execution_id = await submitted(db)
        assert await claim(worker, given.WORKER, ttl=30) == []

    [task] = await claim(worker, given.WORKER, ttl=30)
    assert task.lease.execution_id == execution_id


@pytest.mark.parametrize(("priority", "stored"), [(-5, 0), (9001, 9000), (None, 0)])
async def test_its_priority_is_clamped(db: Connection, priority: int | None, stored: int) -> None:
    execution_id = await submitted(db, "SELECT ff.submit('job', priority => $1)", priority)

    assert (await given.row(db, execution_id))["priority"] == stored


async def test_the_policys_delay_and_deadline_count(db: Connection, clock: Clock) -> None:
    now = await clock.now_ms()
    execution_id = await submitted(
        db,
        "SELECT ff.submit('job', policy => $1::text::jsonb)",
        f'{{"delay_until": {now + 5000}, "timeout_policy": {{"execution_deadline_ms": 9000}}}}',
    )

    stored = await given.row(db, execution_id)
    assert (stored["delay_until_ms"], stored["deadline_at_ms"]) == (now + 5000, now + 9000)


@pytest.mark.parametrize("minted", range(5))
async def test_it_keeps_to_the_configured_partitions(db: Connection, minted: int) -> None:
    await db.execute("UPDATE ff.partition_config SET num_flow_partitions = 2")

    plain = await submitted(db)
    keyed = await submitted(db, "SELECT ff.submit('job', idempotency_key => $1)", str(minted))

    assert plain.partition_key < 2
    assert keyed.partition_key < 2


@pytest.mark.parametrize(
    "call",
    [
        "ff.submit(NULL)",
        "ff.submit('')",
        "ff.submit(repeat('x', 257))",
        "ff.submit('job', payload => NULL)",
        "ff.submit('job', namespace => '')",
        "ff.submit('job', namespace => NULL)",
        "ff.submit('job', lane => '')",
        "ff.submit('job', lane => NULL)",
        "ff.submit('job', lane => repeat('x', 65))",
        "ff.submit('job', lane => 'größe')",
        "ff.submit('job', lane => E'a\\tb')",
        "ff.submit('job', tags => '[]')",
        "ff.submit('job', tags => '{\"shop.tenant\": 7}')",
        "ff.submit('job', tags => '{\"Shop.tenant\": \"x\"}')",
        "ff.submit('job', tags => '{\"tenant\": \"x\"}')",
        "ff.submit('job', tags => '{\"shop..tenant\": \"x\"}')",
        "ff.submit('job', tags => '{\"shop.\": \"x\"}')",
        "ff.submit('job', requires => ARRAY['a,b'])",
        "ff.submit('job', requires => ARRAY[''])",
        "ff.submit('job', requires => ARRAY['a b'])",
        "ff.submit('job', requires => ARRAY[NULL])",
        "ff.submit('job', requires => ARRAY(SELECT 'c' || n FROM generate_series(1, 257) n))",
        "ff.submit('job', requires => ARRAY[repeat('x', 4097)])",
    ],
)
async def test_what_cannot_be_honoured_is_an_error_and_leaves_nothing(
    db: Connection, call: str
) -> None:
    before = await given.everything(db)

    with pytest.raises(asyncpg.PostgresError):
        await db.fetchval(f"SELECT {call}")

    assert await given.everything(db) == before


@pytest.mark.parametrize(
    "policy",
    [
        "[]",
        '"often"',
        '{"retry_policy": 3}',
        '{"retry_policy": {"max_retries": "3"}}',
        '{"retry_policy": {"max_retries": -1}}',
        '{"retry_policy": {"max_retries": 1.5}}',
        '{"retry_policy": {"max_retries": 3000000000}}',
        '{"retry_policy": {"backoff": "fixed"}}',
        '{"retry_policy": {"backoff": {"type": "fixed", "delay_ms": "soon"}}}',
        '{"retry_policy": {"backoff": {"type": "fixed", "delay_ms": -1}}}',
        '{"retry_policy": {"backoff": {"type": "fixed", "delay_ms": 1e300}}}',
        '{"retry_policy": {"backoff": {"type": "exponential", "multiplier": "two"}}}',
        '{"retry_policy": {"backoff": {"type": "exponential", "multiplier": 1e9}}}',
        '{"retry_policy": {"backoff": {"type": "exponential", "jitter": "perhaps"}}}',
        '{"retry_policy": {"retryable_categories": "a"}}',
        '{"timeout_policy": 5}',
        '{"timeout_policy": {"attempt_timeout_ms": "5"}}',
        '{"timeout_policy": {"attempt_timeout_ms": 1.5}}',
        '{"timeout_policy": {"attempt_timeout_ms": 1e30}}',
        '{"timeout_policy": {"attempt_timeout_ms": -1}}',
        '{"timeout_policy": {"execution_deadline_ms": "5"}}',
        '{"timeout_policy": {"max_reclaim_count": "many"}}',
        '{"max_reclaim_count": "many"}',
        '{"max_reclaim_count": 1.5}',
        '{"max_reclaim_count": -1}',
        '{"dedup_window_ms": "long"}',
    ],
)
async def test_a_policy_that_cannot_be_honoured_is_an_error(db: Connection, policy: str) -> None:
    before = await given.everything(db)

    with pytest.raises(asyncpg.PostgresError):
        await db.fetchval("SELECT ff.submit('job', policy => $1::text::jsonb)", policy)

    assert await given.everything(db) == before


@pytest.mark.parametrize(
    "policy",
    [
        '{"timeout_policy": {"attempt_timeout_ms": 1.5}}',
        '{"retry_policy": {"max_retries": 1.5}}',
        '{"retry_policy": {"backoff": {"type": "fixed", "delay_ms": "soon"}}}',
        '{"max_reclaim_count": 1.5}',
        '{"timeout_policy": {"max_reclaim_count": "many"}}',
    ],
)
async def test_no_submission_can_stop_the_work_of_others(
    db: Connection, clock: Clock, policy: str
) -> None:
    with contextlib.suppress(asyncpg.PostgresError):  # refused at once is fine too
        await db.fetchval("SELECT ff.submit('job', policy => $1::text::jsonb)", policy)
    others = await given.created(db, policy=given.retrying())
    await claim(db, given.WORKER, ttl=30, limit=10)
    await clock.advance(31)
    await expire_leases(db, limit=10)

    tasks = await claim(db, given.WORKER, ttl=30, limit=10)
    await fail(db, [Failure(lease=task.lease, reason="boom") for task in tasks])

    assert others in {task.lease.execution_id for task in tasks}


async def test_a_retry_policy_with_nothing_said_retries_three_times_from_a_second(
    db: Connection, clock: Clock
) -> None:
    await submitted(db, "SELECT ff.submit('job', policy => '{\"retry_policy\": {}}')")
    [task] = await claim(db, given.WORKER, ttl=30)

    [answer] = await fail(db, [Failure(lease=task.lease, reason="boom")])

    assert isinstance(answer, RetryScheduled)
    assert (await given.row(db, task.lease.execution_id))["delay_until_ms"] == (
        await clock.now_ms() + 1000
    )
