"""Limits in the claim: never more of a key than allowed, first in first out, none forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from flowfabric.counters import QUOTA_HITS
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.quotas.create_quota_policy import create_quota_policy
from flowfabric.engine.quotas.unblock_keys import unblock_keys
from flowfabric.limits import QuotaLimits
from flowfabric.testing import Clock
from tests import given
from tests.engine import controls
from tests.engine.quotas import limited


async def test_no_more_of_a_key_run_than_the_limit_allows(db: Connection) -> None:
    await limited.limit(db, cap=2)
    a = await limited.created(db, *"aaaaa")
    b = await limited.created(db, "b")

    assert await limited.states(db, a) == ["waiting"] * 2 + ["rate_limited"] * 3
    first = await limited.claimed(db)

    assert {each.lease.execution_id for each in first} == {*a[:2], *b}
    assert await limited.claimed(db) == []


async def test_the_next_of_a_key_runs_when_one_has_ended_first_in_first_out(
    db: Connection, clock: Clock
) -> None:
    await limited.limit(db, cap=1)
    ids = list[object]()
    for _ in range(4):
        ids += await limited.created(db, "a")
        await clock.advance(0.01)

    order = list[object]()
    for _ in range(4):
        [task] = await limited.claimed(db)
        order.append(task.lease.execution_id)
        await limited.ended(db, [task])

    assert order == ids
    assert await limited.claimed(db) == []


async def test_a_newcomer_does_not_pass_one_that_is_held_back(db: Connection, clock: Clock) -> None:
    await limited.limit(db, cap=1)
    [running] = (await limited.created(db, "a"),)
    [task] = await limited.claimed(db)
    await clock.advance(1)
    [older] = await limited.created(db, "a")
    assert await limited.claimed(db) == []
    assert await limited.states(db, [older]) == ["rate_limited"]
    await complete(db, [Completion(task.lease)])  # and nobody lets the next one go
    await clock.advance(1)
    [newcomer] = await limited.created(db, "a")

    [next_one] = await limited.claimed(db)

    assert next_one.lease.execution_id == older
    assert await limited.claimed(db) == []
    await limited.ended(db, [next_one])
    assert await limited.claimed_ids(db) == [newcomer]
    assert running


async def test_a_newcomer_does_not_pass_one_that_another_claim_has_locked(
    db: Connection, another: Callable[[], Awaitable[Connection]], clock: Clock
) -> None:
    await limited.limit(db, cap=1)
    [older] = await limited.created(db, "a")
    await clock.advance(1)
    [newcomer] = await limited.created(db, "a")
    [other] = await limited.created(db, "b")
    rival = await another()
    async with rival.transaction():
        await rival.execute("SELECT FROM ff.ready WHERE execution_id = $1 FOR UPDATE", older.uuid)

        assert await limited.claimed_ids(db) == [other]
        assert await limited.claimed(db) == []

    assert await limited.states(db, [older, newcomer]) == ["waiting", "waiting"]
    assert await limited.claimed_ids(db) == [older]


async def test_a_newcomer_does_not_pass_one_that_is_let_go_while_its_claim_waits(
    db: Connection, another: Callable[[], Awaitable[Connection]], clock: Clock
) -> None:
    await limited.limit(db, cap=1)
    await limited.created(db, "a")
    [task] = await limited.claimed(db)
    await clock.advance(1)
    [older] = await limited.created(db, "a")
    assert await limited.claimed(db) == []
    await complete(db, [Completion(task.lease)])
    for _ in range(2):
        await clock.advance(1)
        await limited.created(db, "a")
    rival = await another()
    async with rival.transaction():
        await rival.execute("SELECT FROM ff.claimable('{default}', 'default', NULL, '{}', 1)")
        claim = await controls.waiting(rival, limited.claimed_ids(db))

    assert await claim == [older]


async def _rated_beside_a_full_key(db: Connection, clock: Clock) -> UUID:
    """A limit of one start an hour whose window is empty again; key `a` of another one is full."""
    hourly = QuotaLimits(max_requests_per_window=1, window_seconds=3600)
    rated = (await create_quota_policy(db, "rated", hourly)).quota_policy_id
    await given.created(db, quota_policy_id=rated)
    await limited.ended(db, await limited.claimed(db))
    await clock.advance(3600)
    await limited.limit(db, cap=1)
    await limited.created(db, "a")
    await limited.claimed(db)
    await limited.created(db, "a")
    return rated


async def test_one_that_is_queued_while_a_claim_waits_is_not_counted_before_it_starts(
    db: Connection, another: Callable[[], Awaitable[Connection]], clock: Clock
) -> None:
    rated = await _rated_beside_a_full_key(db, clock)
    rival, third = await another(), await another()
    async with rival.transaction():
        await rival.execute(
            "SELECT FROM ff.lock_quota_keys(ARRAY[$1::bigint], true)", limited.key("a")
        )
        claim = await controls.waiting(rival, limited.claimed_ids(db, 1))
        late = await given.created(third, quota_policy_id=rated)

    assert await claim == [late]


async def test_one_that_was_queued_under_a_savepoint_is_not_counted_before_it_starts(
    db: Connection, another: Callable[[], Awaitable[Connection]], clock: Clock
) -> None:
    """It is committed while a claim waits that began before."""
    rated = await _rated_beside_a_full_key(db, clock)
    rival, third, fourth = await another(), await another(), await another()
    outer = third.transaction()
    await outer.start()
    async with third.transaction():
        late = await given.created(third, quota_policy_id=rated)
    await fourth.execute("SELECT pg_current_xact_id()")  # what ends later has a later number
    async with rival.transaction():
        await rival.execute(
            "SELECT FROM ff.lock_quota_keys(ARRAY[$1::bigint], true)", limited.key("a")
        )
        claim = await controls.waiting(rival, limited.claimed_ids(db, 1))
        await outer.commit()

    assert await claim == [late]


async def test_one_that_was_restored_from_the_dump_of_another_server_starts(db: Connection) -> None:
    """There its transaction had a number to which this server has not come yet."""
    await limited.limit(db, rate=1, window=3600)
    [execution_id] = await limited.created(db, "a")
    await db.execute("UPDATE ff.ready SET queued_by = '4611686018427387904'")

    assert await limited.claimed_ids(db) == [execution_id]
    await limited.created(db, "a")
    assert await limited.claimed_ids(db) == [], "it counts as a start"


async def test_others_are_not_hidden_by_what_is_held_back(db: Connection) -> None:
    await limited.limit(db, cap=1)
    for _ in range(30):
        await limited.created(db, "a")
    free = await given.created(db)
    [other] = await limited.created(db, "b")

    ran = {*await limited.claimed_ids(db, 3), *await limited.claimed_ids(db, 3)}

    assert ran >= {free, other}
    assert len(ran) == 3


async def test_a_claim_looks_at_a_key_once_and_takes_a_part_of_its_flood_from_the_queue(
    db: Connection,
) -> None:
    await limited.limit(db, cap=1)
    await limited.created(db, "b")
    await limited.ended(db, await limited.claimed(db))  # the key is known
    for _ in range(600):  # each by a call of its own, so that all are queued
        await limited.created(db, "a")
    [other] = await limited.created(db, "b")

    tasks = await limited.claimed(db, 4)

    # A later round does not look at the key again: what was taken has no lease yet.
    assert {each.quota_key_id for each in tasks} == {limited.key("a"), limited.key("b")}
    assert [each.lease.execution_id for each in tasks].count(other) == 1
    assert len(tasks) == 2
    assert 500 <= await _held_back(db) <= 504


async def test_a_claim_that_got_many_leaves_in_the_queue_what_it_cannot_take(
    db: Connection,
) -> None:
    await limited.limit(db, cap=1)
    first, second = [await limited.created(db, *map(str, range(120))) for _ in range(2)]

    tasks = await limited.claimed(db, 150)

    assert {each.lease.execution_id for each in tasks} == set(first)
    assert await _held_back(db) == 0
    assert len(await limited.claimed(db, 150)) == 0
    assert await _held_back(db) == 120  # a claim that got nothing has looked at all of them
    await limited.ended(db, tasks)
    assert set(await limited.claimed_ids(db, 150)) == set(second)


async def test_a_claim_that_has_locked_a_key_does_not_wait_for_another(
    db: Connection, another: Callable[[], Awaitable[Connection]]
) -> None:
    """Two claims, each with the key locked that the other one finds next, would wait for ever."""
    await limited.limit(db, cap=1)
    await limited.created(db, "a", "b")
    tasks = await limited.claimed(db)
    await limited.ended(db, [each for each in tasks if each.quota_key_id == limited.key("b")])
    # A claim of one looks behind the first, whose key has no slot left, and finds the second.
    await limited.created(db, "a", priority=9)
    [second] = await limited.created(db, "b", priority=5)
    rival = await another()
    async with rival.transaction():
        await rival.execute(
            "SELECT FROM ff.lock_quota_keys(ARRAY[$1::bigint], true)", limited.key("b")
        )
        undone = db.transaction()
        await undone.start()
        async with asyncio.timeout(10):
            found = await db.fetch(
                "SELECT place FROM ff.claimable('{default}', 'default', NULL, '{}', 1)"
            )
        assert [row["place"] for row in found] == [None]
        await undone.rollback()

    assert await limited.claimed_ids(db, 1) == [second]


async def test_one_that_was_found_stays_in_the_queue_while_its_key_has_room(db: Connection) -> None:
    await limited.limit(db, cap=1)
    await limited.created(db, "a")
    await limited.claimed(db)
    [older] = await limited.created(db, "a")
    assert await limited.claimed(db) == []  # it is held back
    await db.execute("UPDATE ff.quota_policy SET active_concurrency_cap = 3")
    [newcomer] = await limited.created(db, "a")

    assert await limited.claimed_ids(db, 1) == [older]
    assert await limited.states(db, [newcomer]) == ["waiting"]
    assert await limited.claimed_ids(db) == [newcomer]


async def test_a_rate_counts_starts_in_every_window(db: Connection, clock: Clock) -> None:
    await limited.limit(db, rate=2, window=60)
    ids = await limited.created(db, *"aaaaa")

    first = await limited.claimed(db)
    assert len(first) == 2
    await limited.ended(db, first)
    assert await limited.claimed(db) == []

    await clock.advance(59.999)
    await unblock_keys(db, [limited.key("a")])
    assert await limited.claimed(db) == []
    await clock.advance(0.001)
    await unblock_keys(db, [limited.key("a")])
    second = await limited.claimed_ids(db)
    assert len(second) == 2
    assert {each.lease.execution_id for each in first} | set(second) == set(ids[:4])


async def test_what_limits_hold_back_is_counted_by_what_is_used_up(
    db: Connection, clock: Clock
) -> None:
    def hits() -> tuple[int, int]:
        return QUOTA_HITS.values[("rate",)], QUOTA_HITS.values[("concurrency",)]

    await limited.limit(db, cap=2, rate=3, window=60)
    by_rate, by_cap = hits()
    for _ in range(3):  # each by a call of its own, so that all are queued
        await limited.created(db, "a")
    running = await limited.claimed(db)
    assert hits() == (by_rate, by_cap + 1), "two run"
    await limited.ended(db, running)
    await limited.ended(db, await limited.claimed(db))
    await limited.created(db, "a")
    assert await limited.claimed(db) == []
    assert hits() == (by_rate + 1, by_cap + 1), "none runs, three have started"


async def test_executions_without_a_key_share_the_limit(db: Connection) -> None:
    await limited.limit(db, cap=1)
    await create_execution(db, [limited.new(None), limited.new(None)])

    assert len(await limited.claimed(db)) == 1


async def test_an_unknown_limit_is_refused(db: Connection) -> None:
    with pytest.raises(Exception, match="does not exist"):
        await limited.created(db, "a")
    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 0


async def test_an_enqueue_that_is_not_committed_does_not_stop_its_key(
    db: Connection, another: Callable[[], Awaitable[Connection]]
) -> None:
    other = await another()
    await limited.limit(db, cap=2)
    [first] = await limited.created(db, "a")
    async with other.transaction():
        await limited.created(other, *"aaa")
        assert await limited.claimed_ids(db) == [first]  # without waiting


async def test_two_workers_that_claim_at_once_never_pass_the_cap(
    db: Connection, another: Callable[[], Awaitable[Connection]]
) -> None:
    other = await another()
    await limited.limit(db, cap=1)
    await limited.created(db, "a", "b")
    async with db.transaction():
        first = await limited.claimed(db, 2)
        await limited.created(other, "a", "b")
        waiting = await given.blocked(db, other, limited.claimed(other, worker=given.OTHER))

    assert len({each.quota_key_id for each in first}) == len(first) == 2
    assert await waiting == []


async def _held_back(db: Connection) -> int:
    return await db.fetchval(
        "SELECT count(*) FROM ff.exec_core WHERE eligibility_state = 'blocked_by_quota'"
    )
