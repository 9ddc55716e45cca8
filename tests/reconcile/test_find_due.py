"""One process of a fleet sweeps and one takes over; a look tells which sweeps have due rows."""

from __future__ import annotations

import asyncio

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.workers.hold_worker_lock import hold_worker_lock
from flowfabric.engine.workers.recover_dead_workers import APART_MS, recover_dead_workers
from flowfabric.engine.workers.register_worker import register_worker
from flowfabric.reconcile.find_due import HELD_FOR, find_due
from flowfabric.reconcile.loop import STAND_BY_EVERY
from flowfabric.reconcile.release_role import release_role
from flowfabric.reconcile.sweeps import SWEEPS
from flowfabric.testing import Clock
from tests import given
from tests.db.facts import server_is_settled
from tests.engine.controls import Another
from tests.worker.facts import eventually

EVERY_SWEEP = [sweep.name for sweep in SWEEPS]


async def role(db: Connection, instance: str, **options: object) -> str:
    """What the process is after a look."""
    look = await find_due(db, instance, [], **options)  # type: ignore[arg-type]
    return {False: "sweeps", True: "stands by", None: "neither"}[look.standby]


async def roles(db: Connection, *instances: str) -> list[str]:
    return [await role(db, instance) for instance in instances]


async def test_one_process_sweeps_and_one_stands_by(db: Connection, clock: Clock) -> None:
    fleet = ("first", "second", "third")
    assert await roles(db, *fleet) == ["sweeps", "stands by", "neither"]

    await clock.advance(HELD_FOR - 0.1)

    assert await roles(db, *fleet) == ["sweeps", "stands by", "neither"]


async def test_a_process_that_looks_no_more_is_replaced_when_its_time_is_over(
    db: Connection, clock: Clock
) -> None:
    await roles(db, "frozen", "second")
    await clock.advance(HELD_FOR / 2)
    await roles(db, "second")
    await clock.advance(HELD_FOR / 2)

    assert await roles(db, "second", "third") == ["sweeps", "stands by"]
    assert await role(db, "frozen") == "neither"  # it goes on, and does not sweep beside the other


@pytest.mark.parametrize("ttl", [1, 2, 5, 30])
def test_a_process_that_freezes_while_it_sweeps_is_replaced_before_its_leases_are_overdue(
    ttl: float,
) -> None:
    bound = ttl + 1 + 1  # the lease, a scan, and a second
    since_renewal, spare = ttl / 3, 0.3
    takes_over = HELD_FOR + 1.1 * STAND_BY_EVERY  # looks are up to a tenth late

    assert max(ttl, since_renewal + takes_over) + spare <= bound


async def test_a_process_that_stops_leaves_its_role_to_the_next(
    db: Connection, clock: Clock
) -> None:
    await roles(db, "first", "second")

    await release_role(db, "first")

    assert await roles(db, "second", "third") == ["sweeps", "stands by"]


async def test_a_process_with_a_stuck_sweep_keeps_no_role(db: Connection, clock: Clock) -> None:
    await roles(db, "stuck")

    assert await role(db, "stuck", may_sweep=False) == "neither"
    await clock.advance(HELD_FOR)
    assert await role(db, "second") == "sweeps"


@pytest.mark.session("is about the end of a session")
async def test_a_process_whose_session_has_ended_is_replaced_at_once(
    db: Connection, clock: Clock, another: Another
) -> None:
    session = await another()
    await role(db, "killed", session_pid=await session.fetchval("SELECT pg_backend_pid()"))
    assert await role(db, "second") == "stands by"

    await session.close()

    async def takes_over() -> bool:
        return await role(db, "second") == "sweeps"

    await eventually(takes_over)


async def test_two_that_find_the_role_free_at_once_do_not_wait_for_one_another_for_long(
    db: Connection, clock: Clock, another: Another
) -> None:
    pair = [await another(), await another()]

    found = await asyncio.gather(*(role(conn, f"{n}") for n, conn in enumerate(pair)))

    assert "sweeps" in found
    assert sorted(await roles(db, "0", "1")) == ["stands by", "sweeps"]


async def test_an_empty_database_has_only_retention_to_ask_for(db: Connection) -> None:
    look = await find_due(db, "first", EVERY_SWEEP)

    assert (look.due, look.next_due_ms) == (["delete_finished"], None)


async def test_only_the_process_that_sweeps_looks_for_due_rows(
    db: Connection, clock: Clock
) -> None:
    await given.created(db, delay=1)
    await given.created(db, delay=3)
    await clock.advance(1)
    await roles(db, "first")

    first = await find_due(db, "first", ["promote_due"])
    second = await find_due(db, "second", ["promote_due"])

    assert (first.due, first.next_due_ms) == (["promote_due"], 2000)
    assert (second.due, second.next_due_ms) == ([], None)


@pytest.mark.session("a lock is held by a session")
async def test_a_dead_worker_is_looked_for_by_the_standby_too(
    db: Connection, clock: Clock, another: Another
) -> None:
    await server_is_settled(db)
    await given.created(db, delay=1)
    await clock.advance(1)
    await register_worker(
        db, worker_id="w", worker_instance_id="w-1", lanes=["default"], liveness_ttl=30
    )
    session = await another()
    await hold_worker_lock(session, "w-1")
    await session.close()
    fleet = ("first", "second", "third")
    wanted = ["promote_due", "recover_dead_workers"]

    due = [sorted((await find_due(db, each, wanted)).due) for each in fleet]
    async with db.transaction():
        await recover_dead_workers(db, 100)
    again_in = [(await find_due(db, each, wanted)).next_due_ms for each in fleet]

    assert due == [wanted, ["recover_dead_workers"], []]
    assert again_in == [APART_MS, APART_MS, None]
