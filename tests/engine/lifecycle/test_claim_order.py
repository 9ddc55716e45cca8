"""Who gets what, and in which order."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.block import block
from flowfabric.engine.lifecycle.claim import Claimant, Claimed, claim
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.ids import ExecutionId
from flowfabric.states import BlockingReason, EligibilityState
from flowfabric.testing import Clock
from tests import given

Another = Callable[[], Awaitable[Connection]]


def worker(**fields: object) -> Claimant:
    return msgspec.structs.replace(given.WORKER, **fields)


def names(tasks: list[Claimed]) -> list[bytes]:
    return [task.input_payload for task in tasks]


async def test_the_highest_priority_is_first_then_the_oldest(db: Connection, clock: Clock) -> None:
    for name, priority in ((b"c", 0), (b"a", 5), (b"d", 0), (b"b", 5), (b"top", 9000)):
        await given.created(db, input_payload=name, priority=priority)
        await clock.advance(1)

    tasks = await claim(db, given.WORKER, ttl=30, limit=10)

    assert names(tasks) == [b"top", b"a", b"b", b"c", b"d"]


async def test_one_by_one_is_the_same_order(db: Connection, clock: Clock) -> None:
    for name, priority in ((b"c", 0), (b"a", 5), (b"d", 0), (b"b", 5)):
        await given.created(db, input_payload=name, priority=priority)
        await clock.advance(1)

    order = [names(await claim(db, given.WORKER, ttl=30)) for _ in range(5)]

    assert order == [[b"a"], [b"b"], [b"c"], [b"d"], []]


@pytest.mark.parametrize("limit", [1, 2, 3, 8])
async def test_the_order_holds_across_kinds_lanes_and_capabilities(
    db: Connection, clock: Clock, limit: int
) -> None:
    routes = [
        {"execution_kind": "send"},
        {"execution_kind": "work"},
        {"lane_id": "other"},
        {"required_capabilities": ("gpu",)},
    ]
    for n in range(8):
        await given.created(db, input_payload=b"%d" % n, priority=n // 4, **routes[n % 4])
        await clock.advance(1)
    everywhere = worker(lanes=("default", "other"), capabilities=("gpu",))

    order = []
    while tasks := await claim(db, everywhere, ttl=30, limit=limit):
        order += names(tasks)

    assert order == [b"4", b"5", b"6", b"7", b"0", b"1", b"2", b"3"]


QUEUED = "SELECT execution_id FROM ff.ready ORDER BY priority DESC, created_at_ms, execution_id"


@pytest.mark.parametrize("limit", [1, 3, 10, 40])
@pytest.mark.parametrize("skew", [1, 4])
async def test_the_order_holds_across_many_kinds_of_which_some_have_most_executions(
    db: Connection, clock: Clock, limit: int, skew: int
) -> None:
    chance = random.Random(limit * skew)
    for _ in range(4):
        kinds = [f"k-{int(30 * chance.random() ** skew)}" for _ in range(40)]
        await create_execution(
            db, [given.new(execution_kind=kind, priority=chance.randrange(3)) for kind in kinds]
        )
        await clock.advance(1)
    expected = [row["execution_id"] for row in await db.fetch(QUEUED)]

    order = []
    while tasks := await claim(db, given.WORKER, ttl=30, limit=limit):
        order += [task.lease.execution_id.uuid for task in tasks]

    assert order == expected


async def test_the_order_does_not_depend_on_the_partition(db: Connection, clock: Clock) -> None:
    fresh = ExecutionId.mint().uuid
    for n, partition in enumerate((255, 0, 128, 3)):
        await given.created(db, execution_id=ExecutionId(partition, fresh), input_payload=b"%d" % n)
        await clock.advance(1)

    assert names(await claim(db, given.WORKER, ttl=30, limit=10)) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("required", "offered", "claimable"),
    [
        ((), (), True),
        ((), ("gpu",), True),
        (("gpu",), (), False),
        (("gpu",), ("gpu",), True),
        (("gpu",), ("GPU",), False),
        (("gpu",), ("gpu-a100",), False),
        (("gpu", "arm"), ("gpu",), False),
        (("gpu", "arm"), ("arm", "gpu", "eu"), True),
        (("größe",), ("größe",), True),
    ],
)
async def test_a_worker_needs_every_required_capability(
    db: Connection, required: tuple[str, ...], offered: tuple[str, ...], claimable: bool
) -> None:
    await given.created(db, required_capabilities=required)

    tasks = await claim(db, worker(capabilities=offered), ttl=30)

    assert len(tasks) == claimable


async def test_what_a_worker_cannot_run_hides_nothing_behind_it(
    db: Connection, clock: Clock
) -> None:
    for n in range(30):
        await given.created(db, priority=100, required_capabilities=(f"rare-{n}",))
        await given.created(db, priority=100, execution_kind=f"unknown-{n}")
        await given.created(db, priority=100, namespace=f"foreign-{n}")
        await given.created(db, priority=100, lane_id=f"lane-{n}")
    await clock.advance(1)
    mine = await given.created(db)

    tasks = await claim(db, worker(kinds=("job",)), ttl=30)

    assert [task.lease.execution_id for task in tasks] == [mine]


async def test_only_the_kinds_that_a_worker_knows_are_claimed(db: Connection) -> None:
    for kind in ("send", "work", "send_all"):
        await given.created(db, execution_kind=kind, input_payload=kind.encode())

    assert await claim(db, worker(kinds=()), ttl=30, limit=10) == []
    assert await claim(db, worker(kinds=("Send", "sen")), ttl=30, limit=10) == []
    assert names(await claim(db, worker(kinds=("send",)), ttl=30, limit=10)) == [b"send"]
    assert len(await claim(db, worker(kinds=None), ttl=30, limit=10)) == 2


async def test_namespaces_are_separate(db: Connection) -> None:
    ours = await given.created(db, namespace="ours")
    await given.created(db, namespace="theirs")

    tasks = await claim(db, worker(namespace="ours"), ttl=30, limit=10)

    assert [task.lease.execution_id for task in tasks] == [ours]
    assert await claim(db, worker(namespace="default"), ttl=30, limit=10) == []


async def test_only_the_lanes_of_a_worker_are_claimed(db: Connection) -> None:
    for lane in ("a", "b", "c"):
        await given.created(db, lane_id=lane, input_payload=lane.encode())

    tasks = await claim(db, worker(lanes=("a", "c", "a", "none")), ttl=30, limit=10)

    assert sorted(names(tasks)) == [b"a", b"c"]


async def test_a_claim_takes_no_more_than_its_limit(db: Connection) -> None:
    await create_execution(db, [given.new(execution_kind=f"k-{n % 4}") for n in range(25)])

    sizes = [len(await claim(db, given.WORKER, ttl=30, limit=10)) for _ in range(4)]

    assert sizes == [10, 10, 5, 0]


async def test_what_waits_for_its_time_is_not_claimed(db: Connection, clock: Clock) -> None:
    await given.created(db, delay=10)
    await clock.advance(11)

    assert await claim(db, given.WORKER, ttl=30) == []


@pytest.mark.parametrize(
    ("eligibility", "reason"),
    [
        ("blocked_by_dependencies", "waiting_for_children"),
        ("blocked_by_budget", "waiting_for_budget"),
        ("blocked_by_quota", "waiting_for_quota"),
        ("blocked_by_route", "waiting_for_capable_worker"),
        ("blocked_by_lane_state", "paused_by_policy"),
        ("blocked_by_operator", "paused_by_operator"),
    ],
)
async def test_what_is_blocked_is_not_claimed(
    db: Connection, eligibility: str, reason: str
) -> None:
    execution_id = await given.created(db)
    async with db.transaction():
        await lock_executions(db, [execution_id])
        await block(
            db,
            [execution_id],
            eligibility=EligibilityState(eligibility),
            reason=BlockingReason(reason),
        )

    assert await claim(db, given.WORKER, ttl=30) == []


async def test_what_runs_or_has_ended_is_not_claimed(db: Connection) -> None:
    await given.claimed(db)
    await cancel_execution(db, await given.created(db), reason="no")

    assert await claim(db, given.OTHER, ttl=30, limit=10) == []


async def test_two_claimers_at_once_get_different_executions(
    db: Connection, another: Another
) -> None:
    for n in range(4):
        await given.created(db, input_payload=b"%d" % n)
    first, second = await another(), await another()
    async with first.transaction():
        ours = await claim(first, given.WORKER, ttl=30, limit=2)
        theirs = await claim(second, given.OTHER, ttl=30, limit=2)

    assert len(set(names(ours)) | set(names(theirs))) == 4


async def test_many_claimers_share_the_work_without_overlap(
    db: Connection, another: Another
) -> None:
    created = await create_execution(
        db, [given.new(execution_kind=f"k-{n % 3}", priority=n % 5) for n in range(120)]
    )

    async def all_of(conn: Connection) -> list[ExecutionId]:
        mine: list[ExecutionId] = []
        for _ in range(12):
            mine += [
                task.lease.execution_id for task in await claim(conn, given.WORKER, ttl=30, limit=7)
            ]
        return mine

    shares = await asyncio.gather(*[all_of(await another()) for _ in range(4)])

    taken = [execution_id for share in shares for execution_id in share]
    assert len(taken) == len(set(taken))
    left = [task.lease.execution_id for task in await claim(db, given.WORKER, ttl=30, limit=120)]
    assert {*taken, *left} == {answer.execution_id for answer in created}
    assert await db.fetchval("SELECT max(lease_epoch) FROM ff.execution") == 1


async def lock(conn: Connection, execution_id: ExecutionId) -> None:
    await conn.execute("SELECT FROM ff.ready WHERE execution_id = $1 FOR UPDATE", execution_id.uuid)


async def test_a_row_in_use_elsewhere_is_passed_over(db: Connection, another: Another) -> None:
    head = await given.created(db, priority=9)
    behind = await given.created(db)
    other = await another()
    async with other.transaction():
        await lock(other, head)

        tasks = await claim(db, given.WORKER, ttl=30)

    assert [task.lease.execution_id for task in tasks] == [behind]


async def test_a_row_in_use_elsewhere_hides_nothing_of_another_kind(
    db: Connection, another: Another
) -> None:
    head = await given.created(db, priority=9, execution_kind="busy")
    behind = await given.created(db, execution_kind="free")
    other = await another()
    async with other.transaction():
        await lock(other, head)

        tasks = await claim(db, given.WORKER, ttl=30)

    assert [task.lease.execution_id for task in tasks] == [behind]


async def test_rows_in_use_elsewhere_do_not_shrink_a_batch(
    db: Connection, another: Another
) -> None:
    heads = [await given.created(db, priority=9, execution_kind="busy") for _ in range(5)]
    for _ in range(5):
        await given.created(db, execution_kind="free")
    other = await another()
    async with other.transaction():
        for head in heads:
            await lock(other, head)

        tasks = await claim(db, given.WORKER, ttl=30, limit=5)

    assert len(tasks) == 5


async def test_rows_in_use_elsewhere_are_replaced_by_the_best_of_all_kinds(
    db: Connection, another: Another
) -> None:
    await create_execution(
        db, [given.new(execution_kind=f"k-{n % 7}", priority=n % 3) for n in range(120)]
    )
    expected = [row["execution_id"] for row in await db.fetch(QUEUED)]
    other = await another()
    async with other.transaction():
        theirs = await claim(other, given.OTHER, ttl=30, limit=50)

        ours = await claim(db, given.WORKER, ttl=30, limit=10)
        rest = await claim(db, given.WORKER, ttl=30, limit=100)

    assert [task.lease.execution_id.uuid for task in (*theirs, *ours, *rest)] == expected


async def test_a_claim_that_is_rolled_back_leaves_the_row_to_others(
    db: Connection, another: Another
) -> None:
    execution_id = await given.created(db)
    first, second = await another(), await another()
    begun = first.transaction()
    await begun.start()
    [ours] = await claim(first, given.WORKER, ttl=30)

    assert await claim(second, given.OTHER, ttl=30) == []
    await begun.rollback()
    [theirs] = await claim(second, given.OTHER, ttl=30)

    assert ours.lease.execution_id == theirs.lease.execution_id == execution_id
    assert theirs.lease.lease_epoch == 1
