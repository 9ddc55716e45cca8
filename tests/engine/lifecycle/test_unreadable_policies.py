"""A stored policy that cannot be read as it should be: its execution and its neighbours move."""

import json
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.explain_execution import explain_execution
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.expire_attempts import expire_attempts
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, RetryScheduled, TerminalFailed, fail
from flowfabric.engine.lifecycle.lock_executions import lock_and_read
from flowfabric.engine.lifecycle.lock_for_claim import require_for_claim
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from tests import given

WRONG: list[Any] = ["x", "", True, None, [], {}, [3], {"n": 3}, -1, -0.5, 2.5, 3.0, 1e30, 1e-9]
WRONG_TEXT = [json.dumps(each) for each in WRONG] + ["1e400", "-1e400", "9223372036854775808"]

PATHS = [
    "{max_reclaim_count}",
    "{max_replay_count}",
    "{timeout_policy}",
    "{timeout_policy,attempt_timeout_ms}",
    "{timeout_policy,execution_deadline_ms}",
    "{timeout_policy,max_reclaim_count}",
    "{retry_policy}",
    "{retry_policy,max_retries}",
    "{retry_policy,retryable_categories}",
    "{retry_policy,backoff}",
    "{retry_policy,backoff,type}",
    "{retry_policy,backoff,initial_delay_ms}",
    "{retry_policy,backoff,max_delay_ms}",
    "{retry_policy,backoff,multiplier}",
    "{retry_policy,backoff,jitter}",
]
WHOLE: dict[str, Any] = {
    "retry_policy": {
        "max_retries": 3,
        "backoff": {"type": "exponential", "initial_delay_ms": 1000, "multiplier": 2.0},
        "retryable_categories": [],
    },
    "timeout_policy": {"attempt_timeout_ms": 5000},
}


async def stored(db: Connection, policy: str, *, at: str = "{}") -> ExecutionId:
    """An execution whose policy another writer stored; `at` names the place of the wrong value."""
    execution_id = await given.created(db, policy=given.retrying())
    await db.execute(
        "UPDATE ff.exec_body SET policy = CASE WHEN $3 = '{}' THEN $4::text::jsonb"
        "  ELSE jsonb_set($5::text::jsonb, $3::text::text[], $4::text::jsonb) END"
        " WHERE (partition_key, execution_id) = ($1, $2)",
        execution_id.partition_key,
        execution_id.uuid,
        at,
        policy,
        json.dumps(WHOLE),
    )
    return execution_id


@pytest.mark.parametrize("at", ["{}", *PATHS])
async def test_no_value_in_a_policy_stops_claims_recovery_retries_or_controls(
    db: Connection, clock: Clock, at: str
) -> None:
    strange = [await stored(db, text, at=at) for text in WRONG_TEXT]
    sound = await given.created(db, policy=given.retrying())
    everyone = {*strange, sound}

    first = await claim(db, given.WORKER, ttl=30, limit=100)
    assert {each.lease.execution_id for each in first} == everyone
    await clock.advance(31)
    moved = await expire_leases(db, limit=100)
    moved += await expire_attempts(db, limit=100)
    assert moved == len(everyone)
    await clock.advance(3600)
    await db.execute(
        "UPDATE ff.exec_core SET eligibility_state = 'eligible_now', delay_until_ms = NULL,"
        " blocking_reason = 'waiting_for_worker' WHERE eligibility_state ="
        " 'not_eligible_until_time'"
    )
    again = await claim(db, given.WORKER, ttl=7200, limit=100)
    assert sound in {each.lease.execution_id for each in again}
    answers = await fail(db, [Failure(lease=each.lease, reason="no") for each in again])
    assert all(isinstance(each, RetryScheduled | TerminalFailed) for each in answers)
    assert set(await lock_and_read(db, sorted(everyone))) == everyone
    for each in strange:
        await require_for_claim(db, each)
        assert await explain_execution(db, each)


async def test_a_whole_number_with_a_point_is_read_as_that_number(
    db: Connection, clock: Clock
) -> None:
    await stored(db, "1500.0", at="{timeout_policy,attempt_timeout_ms}")

    [claimed] = await claim(db, given.WORKER, ttl=30)

    assert claimed.attempt_timeout == 1.5


async def test_a_number_that_is_too_large_counts_as_the_largest(
    db: Connection, clock: Clock
) -> None:
    await stored(db, "1e30", at="{timeout_policy,attempt_timeout_ms}")

    [claimed] = await claim(db, given.WORKER, ttl=30)

    assert claimed.attempt_timeout == 100 * 365 * 24 * 3600


async def test_a_cap_that_is_no_number_counts_as_the_default(db: Connection) -> None:
    assert await db.fetchval("""SELECT ff.reclaim_cap('{"max_reclaim_count": "x"}')""") == 5
    assert await db.fetchval("""SELECT ff.reclaim_cap('{"max_reclaim_count": -3}')""") == 5
    assert await db.fetchval("""SELECT ff.reclaim_cap('{"max_reclaim_count": 3.0}')""") == 3
    assert await db.fetchval("""SELECT ff.replay_cap('{"max_replay_count": []}')""") == 10


async def test_tags_that_are_not_text_do_not_cost_the_neighbours_their_lease(
    db: Connection,
) -> None:
    strange, odd = await given.created(db), await given.created(db)
    sound = await given.created(db, tags={"shop.tenant": "a"})
    for execution_id, tags in ((strange, '{"shop.n": 5, "shop.t": "b"}'), (odd, "[1]")):
        await db.execute(
            "UPDATE ff.exec_core SET tags = $3::text::jsonb"
            " WHERE (partition_key, execution_id) = ($1, $2)",
            execution_id.partition_key,
            execution_id.uuid,
            tags,
        )

    claimed = {
        each.lease.execution_id: each.tags
        for each in await claim(db, given.WORKER, ttl=30, limit=10)
    }

    assert claimed == {
        strange: {"shop.n": "5", "shop.t": "b"},
        odd: {},
        sound: {"shop.tenant": "a"},
    }
