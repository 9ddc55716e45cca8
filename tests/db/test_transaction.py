"""The one transaction and the one retry loop, against real conflicts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection, execute
from flowfabric.db.transaction import repeated, run, transact
from flowfabric.errors import (
    FlowFabricError,
    InternalError,
    RetryExhausted,
    TransportError,
    ValidationError,
)

INSERT_LANE = "INSERT INTO ff.lane_registry VALUES (%(lane)s, 0, 'test')"
TOUCH = "UPDATE ff.lane_registry SET registered_at_ms = registered_at_ms + 1"


@pytest.fixture
async def pool(ff_dsn: str) -> AsyncGenerator[Pool]:
    pool = await Pool.open(DatabaseConfig(dsn=ff_dsn, pool_size=2, lock_timeout=0.02), role="tests")
    try:
        yield pool
    finally:
        await pool.close()


async def lanes(db: Connection) -> dict[str, int]:
    rows = await db.fetch("SELECT lane_id, registered_at_ms FROM ff.lane_registry")
    return {row["lane_id"]: row["registered_at_ms"] for row in rows}


class Disturbed:
    """A body that another transaction disturbs, the first `times` it runs."""

    def __init__(self, db: Connection, times: int) -> None:
        self.db, self.times = db, times
        self.began: list[float] = []

    async def __call__(self, conn: Connection) -> str:
        self.began.append(asyncio.get_running_loop().time())
        await conn.fetch("SELECT * FROM ff.lane_registry")
        if len(self.began) <= self.times:
            await self.db.execute(TOUCH)
        await execute(conn, "UPDATE ff.lane_registry SET registered_by = 'mine'")
        return f"run {len(self.began)}"


# Conflicts.


async def test_a_conflict_that_persists_is_given_up_after_three_runs(
    pool: Pool, db: Connection
) -> None:
    await execute(db, INSERT_LANE, lane="a")
    body = Disturbed(db, times=99)

    with pytest.raises(RetryExhausted) as error:
        await transact(pool, "cancel_execution", body, isolation="serializable")

    assert (error.value.operation, error.value.attempts) == ("cancel_execution", 3)
    assert error.value.retryable
    assert len(body.began) == 3
    assert await lanes(db) == {"a": 3}
    assert await db.fetchval("SELECT registered_by FROM ff.lane_registry") == "test"


async def test_the_pauses_between_runs_grow(pool: Pool, db: Connection) -> None:
    await execute(db, INSERT_LANE, lane="a")
    body = Disturbed(db, times=99)

    with pytest.raises(RetryExhausted):
        await transact(pool, "cancel_execution", body, isolation="serializable")

    first, second, third = body.began
    assert second - first >= 0.005
    assert third - second >= 0.010


@pytest.mark.parametrize("times", [0, 1, 2])
async def test_a_conflict_that_passes_is_not_seen_by_the_caller(
    pool: Pool, db: Connection, times: int
) -> None:
    await execute(db, INSERT_LANE, lane="a")
    body = Disturbed(db, times)

    answer = await transact(pool, "cancel_execution", body, isolation="serializable")

    assert answer == f"run {times + 1}"
    assert await lanes(db) == {"a": times}
    assert await db.fetchval("SELECT registered_by FROM ff.lane_registry") == "mine"


async def test_a_conflict_found_at_commit_runs_the_body_again(pool: Pool, db: Connection) -> None:
    for lane in ("mine", "theirs"):
        await execute(db, INSERT_LANE, lane=lane)
    runs: list[int] = []

    async def body(conn: Connection) -> int:
        runs.append(len(runs) + 1)
        await conn.fetch("SELECT * FROM ff.lane_registry")
        await conn.execute(f"{TOUCH} WHERE lane_id = 'mine'")
        if len(runs) == 1:
            async with db.transaction(isolation="serializable"):
                await db.fetch("SELECT * FROM ff.lane_registry")
                await db.execute(f"{TOUCH} WHERE lane_id = 'theirs'")
        return len(runs)

    assert await transact(pool, "cancel_execution", body, isolation="serializable") == 2
    assert await lanes(db) == {"mine": 1, "theirs": 1}


@pytest.mark.session("has a lock timeout in its session")
async def test_a_lock_that_is_not_given_is_tried_three_times(pool: Pool, db: Connection) -> None:
    runs: list[None] = []

    async def body(conn: Connection) -> None:
        runs.append(None)
        await execute(conn, INSERT_LANE, lane="a")

    async with db.transaction():
        await db.execute("LOCK TABLE ff.lane_registry")
        with pytest.raises(RetryExhausted):
            await transact(pool, "register_lanes", body)

    assert len(runs) == 3
    assert await lanes(db) == {}


@pytest.mark.session("has a lock timeout in its session")
async def test_a_single_statement_is_run_again_too(pool: Pool, db: Connection) -> None:
    holder = db.transaction()
    await holder.start()
    await db.execute("LOCK TABLE ff.lane_registry")
    runs: list[None] = []

    async def body(conn: Connection) -> int:
        runs.append(None)
        if len(runs) == 2:
            await holder.rollback()
        await execute(conn, INSERT_LANE, lane="a")
        return len(runs)

    assert await run(pool, "register_lanes", body) == 2
    assert await lanes(db) == {"a": 0}


# Everything else.


@pytest.mark.parametrize("error", [ValueError("x"), ValidationError("invalid_input", "x")])
async def test_any_other_error_rolls_back_and_is_raised_at_once(
    pool: Pool, db: Connection, error: Exception
) -> None:
    runs: list[None] = []

    async def body(conn: Connection) -> None:
        runs.append(None)
        await execute(conn, INSERT_LANE, lane="a")
        raise error

    with pytest.raises(type(error)) as raised:
        await transact(pool, "register_lanes", body)

    assert raised.value is error
    assert len(runs) == 1
    assert await lanes(db) == {}


async def test_an_error_of_the_database_rolls_back_and_is_raised_at_once(
    pool: Pool, db: Connection
) -> None:
    runs: list[None] = []

    async def body(conn: Connection) -> None:
        runs.append(None)
        await execute(conn, INSERT_LANE, lane="a")
        await execute(conn, INSERT_LANE, lane="a")

    with pytest.raises(InternalError, match="23505"):
        await transact(pool, "register_lanes", body)

    assert len(runs) == 1
    assert await lanes(db) == {}


async def test_a_cancelled_call_rolls_back_and_returns_its_connection(
    ff_dsn: str, db: Connection
) -> None:
    pool = await Pool.open(DatabaseConfig(dsn=ff_dsn, pool_size=1), role="tests")
    written = asyncio.Event()

    async def body(conn: Connection) -> None:
        await execute(conn, INSERT_LANE, lane="a")
        written.set()
        await asyncio.Event().wait()

    call = asyncio.create_task(transact(pool, "register_lanes", body))
    await written.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    await run(pool, "register_lanes", lambda conn: execute(conn, INSERT_LANE, lane="b"))
    assert await lanes(db) == {"b": 0}
    await pool.close()


async def test_what_the_body_did_is_committed_together(pool: Pool, db: Connection) -> None:
    async def body(conn: Connection) -> int:
        await execute(conn, INSERT_LANE, lane="a")
        assert await lanes(db) == {}
        await execute(conn, INSERT_LANE, lane="b")
        return 2

    assert await transact(pool, "register_lanes", body) == 2
    assert await lanes(db) == {"a": 0, "b": 0}


@pytest.mark.parametrize(
    ("isolation", "shown"), [("serializable", "serializable"), ("read_committed", "read committed")]
)
async def test_the_isolation_is_the_one_asked_for(pool: Pool, isolation: str, shown: str) -> None:
    found = await transact(
        pool,
        "look",
        lambda conn: conn.fetchval("SHOW transaction_isolation"),
        isolation=isolation,  # pyright: ignore[reportArgumentType]
    )

    assert found == shown


# Connections that break.


async def cut_itself(conn: Connection) -> None:
    await execute(conn, "SELECT pg_terminate_backend(pg_backend_pid())")


async def test_a_broken_connection_is_raised_at_once_and_replaced(
    pool: Pool, db: Connection
) -> None:
    runs: list[None] = []

    async def body(conn: Connection) -> None:
        runs.append(None)
        await execute(conn, INSERT_LANE, lane="a")
        await cut_itself(conn)

    with pytest.raises(TransportError):
        await transact(pool, "register_lanes", body)

    assert len(runs) == 1
    assert await lanes(db) == {}
    await repeated(
        lambda: run(pool, "register_lanes", lambda conn: execute(conn, INSERT_LANE, lane="b"))
    )
    assert await lanes(db) == {"b": 0}


async def test_an_idempotent_call_is_repeated_until_the_database_is_back(
    pool: Pool, db: Connection
) -> None:
    runs: list[None] = []

    async def attempt() -> int:
        runs.append(None)
        body = cut_itself if len(runs) < 3 else lambda conn: execute(conn, INSERT_LANE, lane="a")
        await run(pool, "register_lanes", body)
        return len(runs)

    assert await repeated(attempt) == 3
    assert await lanes(db) == {"a": 0}


async def test_repeating_ends_with_the_error_when_time_is_up(pool: Pool) -> None:
    runs: list[None] = []

    async def attempt() -> None:
        runs.append(None)
        await run(pool, "look", cut_itself)

    with pytest.raises(TransportError):
        await repeated(attempt, within=0)

    assert len(runs) == 1


async def test_only_a_broken_connection_is_repeated(pool: Pool) -> None:
    runs: list[None] = []

    async def attempt() -> None:
        runs.append(None)
        await run(pool, "look", lambda conn: execute(conn, "SELECT * FROM ff.not_there"))

    with pytest.raises(FlowFabricError, match="not_there"):
        await repeated(attempt)

    assert len(runs) == 1
