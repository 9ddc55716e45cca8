"""An operation is held up before each of its statements, and before it commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection, Moved, execute, fetch_one
from flowfabric.db.steps import COMMIT, stepped
from flowfabric.db.transaction import run, transact
from flowfabric.errors import ValidationError

INSERT_LANE = """
-- tests.insert_lane
INSERT INTO ff.lane_registry VALUES ('a', 0, 'test')
"""
COUNT_LANES = """
-- tests.count_lanes
SELECT count(*) AS moved FROM ff.lane_registry
"""


@pytest.fixture
async def pool(ff_dsn: str) -> AsyncGenerator[Pool]:
    pool = await Pool.open(DatabaseConfig(dsn=ff_dsn, pool_size=1), role="tests")
    try:
        yield pool
    finally:
        await pool.close()


async def insert_and_count(conn: Connection) -> int:
    await execute(conn, INSERT_LANE)
    return (await fetch_one(conn, COUNT_LANES, Moved)).moved


async def count(db: Connection) -> int:
    return (await fetch_one(db, COUNT_LANES, Moved)).moved


async def test_each_statement_and_the_commit_are_told_before_they_happen(
    pool: Pool, db: Connection
) -> None:
    told: list[tuple[str, int]] = []

    async def step(_: Connection, name: str) -> None:
        told.append((name, await db.fetchval("SELECT count(*) FROM ff.lane_registry")))

    with stepped(step):
        assert await transact(pool, "test", insert_and_count) == 1

    assert told == [("tests.insert_lane", 0), ("tests.count_lanes", 0), (COMMIT, 0)]
    assert await count(db) == 1


async def test_a_step_holds_the_operation_up_for_as_long_as_it_takes(
    pool: Pool, db: Connection
) -> None:
    arrived, go = asyncio.Event(), asyncio.Event()

    async def step(_: Connection, name: str) -> None:
        if name == COMMIT:
            arrived.set()
            await go.wait()

    async def held() -> int:
        with stepped(step):
            return await transact(pool, "test", insert_and_count)

    task = asyncio.create_task(held())
    await arrived.wait()
    assert (await count(db), task.done()) == (0, False)

    go.set()

    assert (await task, await count(db)) == (1, 1)


async def test_a_step_is_told_the_connection_of_the_statement(pool: Pool) -> None:
    pids: set[int] = set()

    async def step(conn: Connection, _: str) -> None:
        pids.add(conn.get_server_pid())

    async def pid(conn: Connection) -> int:
        await count(conn)
        return conn.get_server_pid()

    with stepped(step):
        assert {await run(pool, "test", pid)} == pids


async def test_what_a_step_raises_ends_the_operation(pool: Pool, db: Connection) -> None:
    async def step(_: Connection, name: str) -> None:
        if name == COMMIT:
            raise ValidationError("invalid_input", "not today")

    with stepped(step), pytest.raises(ValidationError):
        await transact(pool, "test", insert_and_count)

    assert await count(db) == 0


async def test_only_the_task_that_is_stepped_is_held_up(pool: Pool, db: Connection) -> None:
    told: list[str] = []

    async def step(_: Connection, name: str) -> None:
        told.append(name)

    async def held() -> None:
        with stepped(step):
            await transact(pool, "test", insert_and_count)

    await asyncio.create_task(held())
    await count(db)

    assert told == ["tests.insert_lane", "tests.count_lanes", COMMIT]
