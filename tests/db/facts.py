"""Waiting for facts of the server, instead of for time to pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar

from flowfabric.config import behind_pooler
from flowfabric.db.rows import Connection

T = TypeVar("T")


async def until(fact: Callable[[], Awaitable[object]]) -> None:
    """Look again and again until it is so; fails after ten seconds."""
    async with asyncio.timeout(10):
        while not await fact():
            pass


async def server_is_settled(db: Connection) -> None:
    """Wait until workers count as dead again: for some seconds after its start none does."""
    async with asyncio.timeout(10):
        await db.execute(
            "SELECT pg_sleep_until(pg_postmaster_start_time() + interval '5.01 seconds')"
        )


async def waiting(db: Connection, pid: int) -> bool:
    """Does this backend wait for a lock that another one holds?"""
    return bool(await db.fetchval("SELECT cardinality(pg_blocking_pids($1)) > 0", pid))


async def is_blocked(db: Connection, conn: Connection) -> bool:
    """Does what runs on `conn` wait for a lock that another one holds?

    Behind PgBouncer the process id of `conn` is one that PgBouncer made up; there every connection
    of a test has a name of its own.
    """
    if behind_pooler():
        await db.execute("SELECT pg_stat_clear_snapshot()")  # `db` may be in a transaction
        return await db.fetchval(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = $1"
            " AND cardinality(pg_blocking_pids(pid)) > 0)",
            conn.get_settings().application_name,
        )
    return await waiting(db, conn.get_server_pid())


async def waiters(db: Connection, role: str) -> set[datetime]:
    """When the transactions began in which connections of this role wait for another one.

    Ask outside of a transaction: within one, the answer never changes.
    """
    rows = await db.fetch(
        "SELECT xact_start FROM pg_stat_activity WHERE application_name = $1"
        " AND datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0",
        f"flowfabric {role}",
    )
    return {row["xact_start"] for row in rows}


async def blocked(
    db: Connection, conn: Connection, call: Coroutine[Any, Any, T]
) -> asyncio.Task[T]:
    """`call`, started on `conn` and seen from `db` to wait for a lock."""
    task = asyncio.create_task(call)

    async def waits() -> bool:
        return task.done() or await is_blocked(db, conn)

    await until(waits)
    assert not task.done(), f"it did not wait: {await task!r}"
    return task


async def disconnected(db: Connection, pid: int) -> None:
    """End the backend, and wait until the server has forgotten it."""
    await db.execute("SELECT pg_terminate_backend($1)", pid)

    async def gone() -> bool:
        return not await db.fetchval("SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid)

    await until(gone)
