"""Limits in the claim: never more of a key than allowed, first in first out, none forgotten."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.quotas.unblock_keys import unblock_keys
from flowfabric.testing import Clock
from tests import given
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
    held_back = await db.fetchval(
        "SELECT count(*) FROM ff.exec_core WHERE eligibility_state = 'blocked_by_quota'"
    )
    assert 500 <= held_back <= 504


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
