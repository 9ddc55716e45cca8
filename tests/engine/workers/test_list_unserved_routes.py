"""Work that waits although no live worker can run it."""

from flowfabric.db.rows import Connection
from flowfabric.engine.workers.list_unserved_routes import list_unserved_routes
from flowfabric.engine.workers.list_workers import list_workers
from flowfabric.engine.workers.register_worker import register_worker
from flowfabric.testing import Clock
from tests import given


async def test_routes_are_listed_until_a_live_worker_can_run_them(
    db: Connection, clock: Clock
) -> None:
    began = await clock.now()
    await given.created(db, required_capabilities=("gpu", "cuda"))
    await clock.advance(1)
    for _ in range(2):
        await given.created(db, lane_id="mail", execution_kind="send")
    await given.created(db, namespace="other")
    await given.created(db, execution_kind="served")
    await register_worker(
        db,
        worker_id="w",
        worker_instance_id="w-1",
        lanes=["default"],
        capabilities=["gpu"],
        liveness_ttl=60,
        version="1.2",
        host="box",
    )

    found = await list_unserved_routes(db, namespace="default")

    assert [(each.execution_kind, each.lane_id, each.waiting) for each in found] == [
        ("job", "default", 1),
        ("send", "mail", 2),
    ]
    assert (found[0].missing_capabilities, found[0].since) == (["cuda"], began)
    assert len(await list_unserved_routes(db)) == 3
    await clock.advance(61)
    assert len(await list_unserved_routes(db, namespace="default")) == 3


async def test_a_worker_is_listed_with_version_host_and_slots_in_use(db: Connection) -> None:
    await register_worker(
        db,
        worker_id="w",
        worker_instance_id="w-1",
        lanes=["default"],
        liveness_ttl=60,
        version="1.2",
        host="box",
    )
    await given.claimed(db)

    [worker] = (await list_workers(db, "default")).workers

    assert (worker.version, worker.host, worker.slots_used) == ("1.2", "box", 1)
