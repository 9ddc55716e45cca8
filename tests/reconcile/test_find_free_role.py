"""A process without a role asks whether it is needed."""

from __future__ import annotations

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.workers.register_worker import register_worker
from flowfabric.reconcile.find_due import HELD_FOR, find_due
from flowfabric.reconcile.find_free_role import find_free_role
from flowfabric.reconcile.release_role import release_role
from flowfabric.testing import Clock


async def is_free(db: Connection, instance: str = "third") -> bool:
    return (await find_free_role(db, instance)).is_free


async def test_a_role_is_free_until_two_others_have_one(db: Connection, clock: Clock) -> None:
    assert await is_free(db)
    await find_due(db, "first", [])
    assert await is_free(db)
    await find_due(db, "second", [])
    assert not await is_free(db)
    assert await is_free(db, "second")  # its own


async def test_a_role_is_free_once_its_time_is_over(db: Connection, clock: Clock) -> None:
    await find_due(db, "first", [])
    await find_due(db, "second", [])

    await clock.advance(HELD_FOR / 2)
    await find_due(db, "second", [])
    assert not await is_free(db)
    await clock.advance(HELD_FOR / 2)

    assert await is_free(db)


@pytest.mark.session("a lock is held by a session")
async def test_a_role_is_free_once_its_session_has_ended(db: Connection, clock: Clock) -> None:
    await find_due(db, "first", [], session_pid=db.get_server_pid())
    await find_due(db, "second", [], session_pid=2**30)

    assert await is_free(db)
    assert (await find_due(db, "third", [])).standby is True
    assert not await is_free(db, "fourth")


async def test_a_role_that_was_released_is_free(db: Connection, clock: Clock) -> None:
    await find_due(db, "first", [])
    await find_due(db, "second", [])
    assert not await is_free(db)

    await release_role(db, "first")

    assert await is_free(db)


async def test_the_processes_of_the_fleet_are_counted(db: Connection) -> None:
    for instance in ("a", "b"):
        await register_worker(
            db, worker_id="w", worker_instance_id=instance, lanes=["default"], liveness_ttl=30
        )

    assert (await find_free_role(db, "first")).processes == 2
