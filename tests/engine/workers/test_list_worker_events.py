"""The life of worker processes: when they came, were last heard of, and went."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.workers.expire_workers import expire_workers
from flowfabric.engine.workers.heartbeat_worker import WorkerNotRegistered, heartbeat_worker
from flowfabric.engine.workers.list_worker_events import WorkerEvent, list_worker_events
from flowfabric.engine.workers.list_workers import list_workers
from flowfabric.engine.workers.mark_worker_dead import mark_worker_dead
from flowfabric.engine.workers.prune_worker_events import KEPT, prune_worker_events
from flowfabric.engine.workers.register_worker import WorkerRegistered, register_worker
from flowfabric.errors import Unavailable, ValidationError
from flowfabric.ids import worker_partition
from flowfabric.states import WorkerEventKind
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import NO_DATABASE

WEEK = 7 * 24 * 3600


async def register(db: Connection, **fields: Any) -> Any:
    defaults: dict[str, Any] = {
        "worker_id": "w",
        "worker_instance_id": "w-1",
        "lanes": ["default"],
        "liveness_ttl": 30,
    }
    return await register_worker(db, **(defaults | fields))


async def kinds(db: Connection, namespace: str = "default", **fields: Any) -> list[str]:
    """What happened, the newest first."""
    events = await list_worker_events(db, namespace, **fields)
    return [event.event_kind.value for event in events]


async def test_a_life_is_told_from_its_end_to_its_beginning(db: Connection, clock: Clock) -> None:
    began = await clock.now()
    await register(db)
    await clock.advance(10)
    await heartbeat_worker(db, "w-1")
    await clock.advance(10)
    await mark_worker_dead(db, "w-1", reason="SIGTERM")

    def event(kind: str, after: float, reason: str | None = None) -> WorkerEvent:
        return WorkerEvent(
            worker_id="w",
            worker_instance_id="w-1",
            event_kind=WorkerEventKind(kind),
            reason=reason,
            at=began + timedelta(seconds=after),
        )

    assert await list_worker_events(db, "default") == [
        event("marked_dead", 20, "SIGTERM"),
        event("heartbeat", 10),
        event("registered", 0),
    ]


async def test_of_many_heartbeats_the_newest_is_kept(db: Connection, clock: Clock) -> None:
    await register(db)
    for _ in range(5):
        await clock.advance(10)
        await heartbeat_worker(db, "w-1")

    heartbeat, registered = await list_worker_events(db, "default")

    assert (heartbeat.event_kind, heartbeat.at) == ("heartbeat", await clock.now())
    assert registered.event_kind == "registered"


async def test_two_heartbeats_of_one_instant_are_one(db: Connection, clock: Clock) -> None:
    await register(db)

    await heartbeat_worker(db, "w-1")
    await heartbeat_worker(db, "w-1")

    assert sorted(await kinds(db)) == ["heartbeat", "registered"]


async def test_a_heartbeat_leaves_those_of_others_alone(db: Connection, clock: Clock) -> None:
    for fields in ({}, {"worker_instance_id": "w-2"}, {"namespace": "acme"}):
        await register(db, **fields)
    await heartbeat_worker(db, "w-2")
    await heartbeat_worker(db, "w-1", namespace="acme")
    await clock.advance(10)

    await heartbeat_worker(db, "w-1")

    assert (await kinds(db, worker_instance_id="w-2")).count("heartbeat") == 1
    assert (await kinds(db, "acme")).count("heartbeat") == 1


async def test_a_worker_that_went_without_a_word_is_told_as_swept(
    db: Connection, clock: Clock
) -> None:
    await register(db)
    await clock.advance(31)
    await expire_workers(db, limit=10)

    swept, _ = await list_worker_events(db, "default")

    assert (swept.event_kind, swept.reason) == ("ttl_swept", None)
    assert (swept.worker_id, swept.at) == ("w", await clock.now())


async def test_each_registration_is_told(db: Connection, clock: Clock) -> None:
    await register(db)
    await clock.advance(10)
    await register(db)

    assert await kinds(db) == ["registered", "registered"]


async def test_a_registration_after_its_time_was_over_names_the_new_worker(
    db: Connection, clock: Clock
) -> None:
    await register(db)
    await clock.advance(30)

    assert await register(db, worker_id="other") == WorkerRegistered()

    assert [event.worker_id for event in await list_worker_events(db, "default")] == ["other", "w"]


async def test_what_is_refused_is_not_told(db: Connection, clock: Clock) -> None:
    await register(db)
    before = await given.everything(db)

    with pytest.raises(ValidationError):
        await register(db, worker_id="other")
    assert await heartbeat_worker(db, "w-2") == WorkerNotRegistered()
    assert await mark_worker_dead(db, "w-2", reason="unknown") == WorkerNotRegistered()
    assert await mark_worker_dead(db, "w-1", reason="it", namespace="acme") == WorkerNotRegistered()
    assert await expire_workers(db, limit=10) == 0

    assert await given.everything(db) == before


async def test_a_namespace_shows_its_own_workers_only(db: Connection) -> None:
    await register(db)
    await register(db, namespace="acme", worker_id="theirs")

    [event] = await list_worker_events(db, "acme")

    assert event.worker_id == "theirs"
    assert await kinds(db, "nobody") == []


async def test_one_process_can_be_asked_for(db: Connection) -> None:
    await register(db)
    await register(db, worker_instance_id="w-2")

    [event] = await list_worker_events(db, "default", worker_instance_id="w-2")

    assert event.worker_instance_id == "w-2"


async def test_the_newest_are_shown_up_to_a_limit(db: Connection, clock: Clock) -> None:
    for n in range(5):
        await register(db, worker_instance_id=f"w-{n}")
        await clock.advance(1)

    events = await list_worker_events(db, "default", limit=2)

    assert [event.worker_instance_id for event in events] == ["w-4", "w-3"]


@pytest.mark.parametrize("limit", [-1, 0, 1001])
async def test_a_page_holds_1_to_1000(limit: int) -> None:
    with pytest.raises(ValidationError, match="limit"):
        await list_worker_events(NO_DATABASE, "default", limit=limit)


async def test_a_namespace_must_be_named() -> None:
    with pytest.raises(Unavailable, match="namespace"):
        await list_worker_events(NO_DATABASE, "")


async def test_a_week_is_kept(db: Connection, clock: Clock) -> None:
    assert timedelta(seconds=WEEK) == KEPT
    await register(db)
    await clock.advance(1)
    await register(db, worker_instance_id="w-2")
    await clock.advance(WEEK - 1.001)
    assert await prune_worker_events(db, limit=10) == 0
    await clock.advance(0.001)

    assert await prune_worker_events(db, limit=10) == 1

    [left] = await list_worker_events(db, "default")
    assert left.worker_instance_id == "w-2"


async def test_a_sweep_keeps_to_its_limit_and_takes_the_oldest_first(
    db: Connection, clock: Clock
) -> None:
    for n in range(3):
        await register(db, worker_instance_id=f"w-{n}")
        await clock.advance(1)
    await clock.advance(WEEK)

    assert await prune_worker_events(db, limit=2) == 2

    [left] = await list_worker_events(db, "default")
    assert left.worker_instance_id == "w-2"


async def test_old_events_are_swept_and_workers_stay(
    db: Connection, clock: Clock, ff_sweep: Callable[[], Awaitable[int]]
) -> None:
    await register(db, liveness_ttl=10 * WEEK)
    await clock.advance(WEEK)

    await ff_sweep()

    assert await kinds(db) == []
    assert len((await list_workers(db, "default")).workers) == 1


async def test_it_passes_through_the_engine(db: Connection, ff_engine: Engine) -> None:
    await register(db)

    [event] = await ff_engine.list_worker_events("default", worker_instance_id="w-1", limit=1)

    assert event.event_kind is WorkerEventKind.REGISTERED


async def test_events_live_where_their_worker_lives(db: Connection) -> None:
    await register(db)

    partition = await db.fetchval("SELECT partition_key FROM ff.worker_registry_event")

    assert partition == worker_partition("w-1")
