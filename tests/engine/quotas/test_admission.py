"""Admission by hand, the sweeps that let executions go, and what they delete."""

from __future__ import annotations

from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.engine.quotas.check_admission import check_admission
from flowfabric.engine.quotas.create_quota_policy import create_quota_policy
from flowfabric.engine.quotas.read_quota_policy_limits import read_quota_policy_limits
from flowfabric.engine.quotas.release_admission import release_admission
from flowfabric.engine.quotas.trim_quotas import trim_quotas
from flowfabric.engine.quotas.unblock_due_keys import keys_due, unblock_due_keys
from flowfabric.engine.quotas.unblock_held_keys import unblock_held_keys
from flowfabric.engine.quotas.unblock_keys_of import unblock_keys_of
from flowfabric.engine.quotas.update_quota_policy import update_quota_policy
from flowfabric.errors import NotFound, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.limits import QuotaLimits
from flowfabric.states import TerminalOutcome
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases
from tests.engine.quotas import limited
from tests.explained import Explained


async def test_admission_counts_starts_and_slots(db: Connection, clock: Clock) -> None:
    policy = uuid4()
    limits = QuotaLimits(window_seconds=60, max_requests_per_window=2, max_concurrent=1)
    assert (await create_quota_policy(db, policy, limits)).created
    assert not (await create_quota_policy(db, policy, QuotaLimits())).created
    assert await read_quota_policy_limits(db, policy) == limits
    first, second, third = (ExecutionId.mint() for _ in range(3))

    assert (await check_admission(db, policy, first)).outcome == "admitted"
    assert (await check_admission(db, policy, first)).outcome == "already_admitted"
    assert (await check_admission(db, policy, second)).outcome == "concurrency_exceeded"
    await release_admission(db, policy, first)
    await release_admission(db, policy, first)
    assert (await check_admission(db, policy, second)).outcome == "admitted"
    await clock.advance(10)
    refused = await check_admission(db, policy, third)
    assert (refused.outcome, refused.retry_after) == ("rate_exceeded", 50)
    assert (await check_admission(db, policy, third, limit_key="other")).is_admitted
    assert (await check_admission(db, uuid4(), third)).is_admitted, "no limit, no admission control"
    for key in ("", "default"):
        assert not (await check_admission(db, policy, third, limit_key=key)).is_admitted
    await release_admission(db, policy, second)
    await clock.advance(49.999)
    late = await check_admission(db, policy, third)
    assert (late.outcome, late.retry_after) == ("rate_exceeded", 0.001)
    await clock.advance(0.001)
    assert (await check_admission(db, policy, third)).outcome == "admitted"


async def test_an_admission_that_cannot_be_is_refused(db: Connection) -> None:
    await limited.limit(db, cap=1)
    one = ExecutionId.mint()
    for call, said in (
        (check_admission(db, "per-customer", "x"), "execution_id 'x'"),  # type: ignore[arg-type]
        (release_admission(db, "per-customer", "x"), "execution_id 'x'"),  # type: ignore[arg-type]
        (check_admission(db, "per-customer", one, limits=5), "limits 5"),  # type: ignore[arg-type]
        (check_admission(db, "per-customer", one, limit_key=5), "limit_key 5"),  # type: ignore[arg-type]
        (check_admission(db, 7, one), "limit 7"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValidationError, match=said):
            await call
    assert await db.fetchval("SELECT count(*) FROM ff.quota_admitted") == 0


async def test_an_execution_that_is_released_and_admitted_again_counts_once(
    db: Connection, clock: Clock
) -> None:
    policy, first, second = uuid4(), ExecutionId.mint(), ExecutionId.mint()
    limits = QuotaLimits(window_seconds=60, max_requests_per_window=2, jitter=5)
    await create_quota_policy(db, policy, limits)
    for _ in range(3):  # also within one millisecond
        assert (await check_admission(db, policy, first)).outcome == "admitted"
        await release_admission(db, policy, first)

    assert (await check_admission(db, policy, second)).outcome == "admitted"
    waits = {(await check_admission(db, policy, ExecutionId.mint())).retry_after for _ in range(50)}
    assert len(waits) > 1, "a random part of the jitter"
    assert all(wait is not None and 60 <= wait <= 65 for wait in waits)
    await clock.advance(60)
    assert (await check_admission(db, policy, ExecutionId.mint())).outcome == "admitted"
    assert await trim_quotas(db, 100) > 0
    assert await db.fetchval("SELECT count(*) FROM ff.quota_admitted WHERE released_at_ms > 0") == 0


async def test_an_execution_is_admitted_by_each_key_of_a_limit_for_itself(db: Connection) -> None:
    """Also by two keys that are stored in the same partition."""
    await limited.limit(db, cap=1)
    keys = dict[int, str]()
    for number in range(1000):
        name = f"k-{number}"
        partition = await db.fetchval("SELECT ff.quota_partition($1, 256)", limited.key(name))
        if partition in keys:
            break
        keys[partition] = name
    one, other = keys[partition], name
    execution_id = ExecutionId.mint()

    for key in (one, other):
        admission = await check_admission(db, "per-customer", execution_id, limit_key=key)
        assert admission.outcome == "admitted"

    for key in (one, other):
        refused = await check_admission(db, "per-customer", ExecutionId.mint(), limit_key=key)
        assert refused.outcome == "concurrency_exceeded"
    await release_admission(db, "per-customer", execution_id)
    for key in (one, other):
        free = await check_admission(db, "per-customer", ExecutionId.mint(), limit_key=key)
        assert free.outcome == "admitted"


@pytest.mark.parametrize(
    "column", ["window_ms", "max_requests_per_window", "active_concurrency_cap", "jitter_ms"]
)
async def test_stored_numbers_that_no_limit_can_have_are_told_as_corruption(
    db: Connection, column: str
) -> None:
    await limited.limit(db, cap=1)
    await db.execute("ALTER TABLE ff.quota_policy DROP CONSTRAINT quota_policy_limits")
    await db.execute(f"UPDATE ff.quota_policy SET {column} = -1")

    with pytest.raises(ValidationError, match="must") as corrupt:
        await read_quota_policy_limits(db, "per-customer")

    assert corrupt.value.code == "corruption"
    assert await read_quota_policy_limits(db, "another") is None


async def test_a_slot_is_free_once_the_execution_has_run_or_ended(
    db: Connection, clock: Clock
) -> None:
    policy = uuid4()
    await create_quota_policy(db, policy, QuotaLimits(window_seconds=10, max_concurrent=1))

    async def admitted() -> str:
        return (await check_admission(db, policy, ExecutionId.mint())).outcome

    for leave in ("complete", "release", "cancel", "never ran"):
        execution_id = await given.created(db)
        assert (await check_admission(db, policy, execution_id)).outcome == "admitted", leave
        if leave != "never ran":
            [task] = await claim(db, given.WORKER, ttl=600)
            await clock.advance(200)  # beyond the window, and beyond the grace
            assert (await check_admission(db, policy, execution_id)).outcome == "admitted"
            assert await admitted() == "concurrency_exceeded", "it runs, and holds one slot"
        if leave == "complete":
            await complete(db, [Completion(task.lease)])
        elif leave == "release":
            await release(db, [task.lease])
            await db.execute("DELETE FROM ff.ready")
        else:
            await lock_executions(db, [execution_id])
            await terminalize(db, [execution_id], outcome=TerminalOutcome.CANCELLED)
        free = ExecutionId.mint()
        assert (await check_admission(db, policy, free)).outcome == "admitted", leave
        await release_admission(db, policy, free)


async def test_a_lost_lease_and_a_cancel_make_room(db: Connection, clock: Clock) -> None:
    await limited.limit(db, cap=1)
    ids = await limited.created(db, *"aaa")
    await limited.claimed(db)
    await clock.advance(31)
    await expire_leases(db, 10)  # queued again, before the others
    assert await keys_due(db)
    await unblock_due_keys(db, 10)
    assert not await keys_due(db)

    await lock_executions(db, [ids[0]])
    await terminalize(db, [ids[0]], outcome=TerminalOutcome.CANCELLED)
    await unblock_due_keys(db, 10)

    assert await limited.claimed_ids(db) == [ids[1]]


async def test_keys_that_nobody_woke_are_found(db: Connection) -> None:
    await limited.limit(db, cap=1)
    ids = await limited.created(db, *"aab")
    tasks = await limited.claimed(db)
    await db.execute("DELETE FROM ff.lease")
    assert len(tasks) == 2

    assert await unblock_held_keys(db, 200) == 1
    assert await limited.states(db, [ids[1]]) == ["waiting"]


async def test_a_raised_limit_lets_others_go(db: Connection) -> None:
    await limited.limit(db, cap=1)
    await limited.created(db, *"aaaa")
    assert len(await limited.claimed(db)) == 1
    await update_quota_policy(db, "per-customer", QuotaLimits(max_concurrent=3))
    await unblock_due_keys(db, 10)

    assert len(await limited.claimed(db)) == 2
    with pytest.raises(NotFound):
        await update_quota_policy(db, "nobody", QuotaLimits(max_concurrent=3))


async def test_what_counts_no_more_is_deleted(db: Connection, clock: Clock) -> None:
    await limited.limit(db, rate=5, window=60)
    await limited.created(db, *"ab")
    await limited.ended(db, await limited.claimed(db))
    assert await trim_quotas(db, 100) == 0
    await clock.advance(119)
    assert await trim_quotas(db, 100) == 0
    await clock.advance(2)

    assert await trim_quotas(db, 100) >= 2
    assert await db.fetchval("SELECT count(*) FROM ff.quota_window") == 0


async def test_starts_that_count_for_long_neither_hide_nor_slow_those_that_count_no_more(
    db: Connection, clock: Clock
) -> None:
    await limited.limit(db, rate=5000, window=86_400)
    short = QuotaLimits(max_requests_per_window=5, window_seconds=1)
    policy = (await create_quota_policy(db, "short", short)).quota_policy_id
    await limited.created(db, "a")
    await given.created(db, quota_policy_id=policy)
    await limited.ended(db, await limited.claimed(db))
    await db.execute(
        "INSERT INTO ff.quota_window (partition_key, quota_key_id, admitted_at_ms)"
        " SELECT partition_key, quota_key_id, ff.now_ms() - n FROM ff.quota_key,"
        " generate_series(1, 2000) AS n WHERE quota_policy_id = $1",
        limited.LIMIT,
    )
    await db.execute("ANALYZE ff.quota_window")
    await clock.advance(3600)

    explained = Explained(db, generic=True)
    assert await trim_quotas(explained, 100) == 1  # type: ignore[arg-type]

    assert explained.costs[0].buffers <= 100
    assert await db.fetchval("SELECT count(*) FROM ff.quota_window") == 2001
    assert await trim_quotas(db, 100) == 1, "the key that nobody uses"
    await clock.advance(86_400)
    while await trim_quotas(db, 100):
        pass
    assert await db.fetchval("SELECT count(*) FROM ff.quota_window") == 0


@all_cases(
    "numbers",
    [
        {"max_concurrent": -1},
        {"max_concurrent": True},
        {"max_concurrent": 1.5},
        {"max_requests_per_window": 5},
        {"max_requests_per_window": "5", "window_seconds": 1},
        {"window_seconds": -1},
        {"jitter": -1},
    ],
    ids=str,
)
def test_numbers_that_are_no_limits_are_refused(numbers: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        QuotaLimits(**numbers)  # type: ignore[arg-type]


async def test_who_does_not_know_the_key_lets_the_next_one_go(db: Connection) -> None:
    await limited.limit(db, cap=1)
    first = await limited.created(db, *"aab")
    free = await given.created(db)
    tasks = await limited.claimed(db)
    await complete(db, [Completion(each.lease) for each in tasks])

    assert await unblock_keys_of(db, [each.lease.execution_id for each in tasks]) == 1
    assert await unblock_keys_of(db, [free]) == 0
    assert await unblock_keys_of(db, []) == 0

    assert await limited.claimed_ids(db) == [first[1]]
