"""Kinds that no live worker serves here, and the workers that serve them elsewhere."""

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.workers.find_unserved import find_unserved
from flowfabric.testing import Clock
from tests import given
from tests.engine.executions.explained import only, worker

HERE = "no live worker serves kind 'x' on lane 'default' in namespace 'a'"
WORKERS = {
    "": {},
    "worker w serves it in namespace 'b'": {"namespace": "b"},
    "worker w serves it on lane 'mail'": {"namespace": "a", "lanes": ["mail"]},
    "worker w serves it on lanes 'mail', 'web' in namespace 'b'": {
        "namespace": "b",
        "lanes": ["web", "mail"],
    },
}


@pytest.mark.parametrize(("clause", "fields"), WORKERS.items())
async def test_it_is_said_where_the_kind_is_served(
    db: Connection, clause: str, fields: dict[str, str]
) -> None:
    execution_id = await given.created(db, execution_kind="x", namespace="a")
    if fields:
        await worker(db, "w", kinds=["x", "y"], **fields)

    [unserved] = await find_unserved(db, "a", [("x", "default")])
    told = (await only(db, execution_id)).message

    assert str(unserved) == (f"{HERE}; {clause}" if clause else HERE)
    assert told.partition("; ")[2] == clause


async def test_the_nearest_worker_is_named_and_the_kind_that_is_served_is_not(
    db: Connection,
) -> None:
    await worker(db, "w-1", namespace="b", kinds=["x"])
    await worker(db, "w-2", namespace="a", lanes=["mail"], kinds=["x"])
    await worker(db, "w-3", namespace="a", kinds=["y"])

    [unserved] = await find_unserved(db, "a", [("x", "default"), ("y", "default")])

    assert str(unserved).endswith("worker w-2 serves it on lane 'mail'")
    assert [each.worker_instance_id for each in unserved.elsewhere] == ["w-2", "w-1"]


async def test_a_worker_without_a_heartbeat_serves_nothing(db: Connection, clock: Clock) -> None:
    await worker(db, "here", kinds=["x"])
    await worker(db, "there", namespace="b", kinds=["x"])
    assert await find_unserved(db, "default", [("x", "default")]) == []
    await clock.advance(31)

    [unserved] = await find_unserved(db, "default", [("x", "default")])

    assert unserved.elsewhere == []
