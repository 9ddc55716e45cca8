"""Which worker processes live."""

from datetime import timedelta
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.workers.expire_workers import expire_workers
from flowfabric.engine.workers.heartbeat_worker import WorkerNotRegistered, heartbeat_worker
from flowfabric.engine.workers.list_workers import list_workers
from flowfabric.engine.workers.mark_worker_dead import WorkerMarkedDead, mark_worker_dead
from flowfabric.engine.workers.register_worker import (
    WorkerRefreshed,
    WorkerRegistered,
    register_worker,
)
from flowfabric.errors import Unavailable, ValidationError
from flowfabric.ids import worker_partition
from flowfabric.instants import instant
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another


async def register(db: Connection, **fields: Any) -> WorkerRegistered | WorkerRefreshed:
    defaults: dict[str, Any] = {
        "worker_id": "w",
        "worker_instance_id": "w-1",
        "lanes": ["default"],
        "liveness_ttl": 30,
    }
    return await register_worker(db, **(defaults | fields))


async def test_a_new_instance_is_registered_and_listed(db: Connection, clock: Clock) -> None:
    answer = await register(
        db,
        lanes=["mail", "default", "mail"],
        capabilities=["gpu", "arm"],
        kinds=["send", "job"],
        concurrency=8,
        namespace="acme",
    )

    assert answer == WorkerRegistered()
    [worker] = (await list_workers(db, "acme")).workers
    now = await clock.now()
    assert (worker.worker_id, worker.worker_instance_id) == ("w", "w-1")
    assert (worker.lanes, worker.capabilities) == (["default", "mail"], ["arm", "gpu"])
    assert (worker.kinds, worker.concurrency) == (["job", "send"], 8)
    assert (worker.registered_at, worker.last_heartbeat_at) == (now, now)
    assert (worker.liveness_ttl, worker.alive) == (timedelta(seconds=30), True)
    assert await db.fetchval("SELECT partition_key FROM ff.worker_registry") == worker_partition(
        "w-1"
    )


async def test_registering_again_refreshes_and_overwrites(db: Connection, clock: Clock) -> None:
    await register(db)
    first = await clock.now()
    await clock.advance(10)

    answer = await register(db, lanes=["mail"], capabilities=["gpu"], liveness_ttl=60)

    assert isinstance(answer, WorkerRefreshed)
    [worker] = (await list_workers(db, "default")).workers
    assert (worker.lanes, worker.capabilities) == (["mail"], ["gpu"])
    assert worker.liveness_ttl == timedelta(seconds=60)
    assert worker.registered_at == first
    assert worker.last_heartbeat_at == await clock.now()


async def test_an_instance_that_lives_cannot_become_another_workers(
    db: Connection, clock: Clock
) -> None:
    await register(db)
    await clock.advance(29.999)
    before = await given.everything(db)

    with pytest.raises(ValidationError, match="reassigned") as raised:
        await register(db, worker_id="other")

    assert raised.value.code == "invalid_input"
    assert await given.everything(db) == before


@pytest.mark.parametrize("worker_id", ["w", "other"])
async def test_an_instance_whose_time_is_over_counts_as_absent(
    db: Connection, clock: Clock, worker_id: str
) -> None:
    await register(db)
    await clock.advance(30)

    answer = await register(db, worker_id=worker_id)

    assert answer == WorkerRegistered()
    [worker] = (await list_workers(db, "default")).workers
    assert worker.worker_id == worker_id
    assert worker.registered_at == await clock.now()


async def test_one_instance_in_two_namespaces_is_two_workers(db: Connection) -> None:
    await register(db, namespace="acme")

    answer = await register(db, namespace="other", worker_id="another")

    assert answer == WorkerRegistered()
    assert len((await list_workers(db, "acme")).workers) == 1
    assert len((await list_workers(db, "other")).workers) == 1


async def test_a_heartbeat_lengthens_a_life(db: Connection, clock: Clock) -> None:
    await register(db)
    await clock.advance(29)

    answer = await heartbeat_worker(db, "w-1")

    now = await clock.now_ms()
    assert answer == WorkerRefreshed(next_expiry=instant(now + 30_000))
    await clock.advance(29.999)
    [worker] = (await list_workers(db, "default")).workers
    assert worker.alive
    assert worker.last_heartbeat_at == instant(now)


async def test_a_heartbeat_that_comes_too_late_must_register_again(
    db: Connection, clock: Clock
) -> None:
    await register(db)
    await clock.advance(30)
    before = await given.everything(db)

    assert await heartbeat_worker(db, "w-1") == WorkerNotRegistered()

    assert await given.everything(db) == before


async def test_a_heartbeat_of_a_stranger_must_register(db: Connection) -> None:
    await register(db, namespace="acme")

    assert await heartbeat_worker(db, "w-1") == WorkerNotRegistered()
    assert await heartbeat_worker(db, "w-2", namespace="acme") == WorkerNotRegistered()


async def test_a_worker_marked_dead_is_gone_and_its_leases_stay(
    db: Connection, clock: Clock
) -> None:
    await register(db)
    await register(db, namespace="acme")
    lease = await given.claimed(db)

    assert await mark_worker_dead(db, "w-1", reason="SIGTERM") == WorkerMarkedDead()

    assert (await list_workers(db, "default")).workers == []
    assert len((await list_workers(db, "acme")).workers) == 1
    assert await heartbeat_worker(db, "w-1") == WorkerNotRegistered()
    assert await mark_worker_dead(db, "w-1", reason="again") == WorkerNotRegistered()
    assert await given.public_state(db, lease.execution_id) == "active"


@pytest.mark.parametrize("reason", ["x" * 257, "ä" * 129, "a\nb", "a\x00b", "a\x7f", "\ud800"])
async def test_a_reason_is_256_bytes_without_control_characters(
    db: Connection, reason: str
) -> None:
    await register(db)

    with pytest.raises(ValidationError, match="reason"):
        await mark_worker_dead(db, "w-1", reason=reason)

    assert len((await list_workers(db, "default")).workers) == 1


async def test_workers_are_listed_page_by_page_in_the_order_of_their_instances(
    db: Connection,
) -> None:
    for n in (3, 1, 5, 2, 4):
        await register(db, worker_instance_id=f"w-{n}")
    pages, after = [], None
    while True:
        page = await list_workers(db, "default", after=after, limit=2)
        pages.append([worker.worker_instance_id for worker in page.workers])
        after = page.next_cursor
        if after is None:
            break

    assert pages == [["w-1", "w-2"], ["w-3", "w-4"], ["w-5"]]


async def test_a_namespace_must_be_named(db: Connection) -> None:
    with pytest.raises(Unavailable, match="namespace"):
        await list_workers(db, "")


@pytest.mark.parametrize("limit", [0, 1001])
async def test_a_page_holds_1_to_1000(db: Connection, limit: int) -> None:
    with pytest.raises(ValidationError, match="limit"):
        await list_workers(db, "default", limit=limit)


async def test_a_worker_whose_heartbeats_stopped_is_shown_as_not_alive_until_it_is_swept(
    db: Connection, clock: Clock
) -> None:
    await register(db)
    await clock.advance(30)
    [lapsed] = (await list_workers(db, "default")).workers
    assert await expire_workers(db, limit=10) == 0
    await clock.advance(0.001)

    assert await expire_workers(db, limit=10) == 1

    assert not lapsed.alive
    assert (await list_workers(db, "default")).workers == []


async def test_a_sweep_takes_only_the_silent_up_to_its_limit(db: Connection, clock: Clock) -> None:
    for n in range(3):
        await register(db, worker_instance_id=f"silent-{n}", liveness_ttl=1)
    await register(db, worker_instance_id="alive")
    await clock.advance(2)

    assert [await expire_workers(db, limit=2) for _ in range(3)] == [2, 1, 0]

    [left] = (await list_workers(db, "default")).workers
    assert left.worker_instance_id == "alive"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"worker_id": ""}, "worker_id"),
        ({"worker_id": "a b"}, "worker_id"),
        ({"worker_id": "x" * 257}, "worker_id"),
        ({"worker_instance_id": "a\x00"}, "worker_instance_id"),
        ({"worker_instance_id": "a\t"}, "worker_instance_id"),
        ({"lanes": ["fine", ""]}, "lane_id"),
        ({"capabilities": ["a,b"]}, "worker:comma_in_token"),
        ({"capabilities": "gpu"}, "worker:not_array"),
        ({"namespace": "a\x00"}, "invalid_input"),
        ({"kinds": ["a\x00"]}, "invalid_input"),
    ],
)
async def test_what_cannot_be_stored_is_refused(
    db: Connection, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValidationError, match=named):
        await register(db, **fields)

    assert await db.fetchval("SELECT count(*) FROM ff.worker_registry") == 0


@pytest.mark.parametrize("instance", ["a\x00b", "\ud800"])
async def test_an_instance_that_cannot_be_stored_is_refused(db: Connection, instance: str) -> None:
    with pytest.raises(ValidationError):
        await heartbeat_worker(db, instance)
    with pytest.raises(ValidationError):
        await mark_worker_dead(db, instance, reason="gone")


async def test_of_two_workers_that_register_one_instance_at_once_the_second_is_refused(
    db: Connection, another: Another, clock: Clock
) -> None:
    first, second = await another(), await another()
    async with first.transaction():
        await register(first, worker_id="first")
        registering = await given.blocked(db, second, register(second, worker_id="second"))

    with pytest.raises(ValidationError, match="reassigned"):
        await registering
    [left] = (await list_workers(db, "default")).workers
    assert left.worker_id == "first"


async def test_one_worker_that_registers_twice_at_once_is_refreshed(
    db: Connection, another: Another, clock: Clock
) -> None:
    first, second = await another(), await another()
    async with first.transaction():
        await register(first)
        registering = await given.blocked(db, second, register(second, lanes=["mail"]))
    await registering

    [left] = (await list_workers(db, "default")).workers
    assert left.lanes == ["mail"]
