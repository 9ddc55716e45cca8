"""Waiting for facts, and reading them off the server."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar, cast

from flowfabric.db.rows import Connection

T = TypeVar("T")

WORKER_CONNECTIONS = """
  FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid()
   AND (application_name LIKE 'flowfabric worker%'
        OR application_name IN ('flowfabric renewer', 'flowfabric listener'))
"""


async def eventually(check: Callable[[], T | Awaitable[T]], *, within: float = 10.0) -> T:
    """The first truthy answer of `check`, which is asked until `within` seconds are over."""
    until = time.monotonic() + within
    while True:
        answer = check()
        found = cast("T", await answer if inspect.isawaitable(answer) else answer)
        if found:
            return found
        assert time.monotonic() < until, f"not so within {within:g} s: {inspect.getsource(check)}"
        await asyncio.sleep(0.01)


async def count(db: Connection, state: str | None = None) -> int:
    """How many executions there are, or how many in one public state."""
    return await db.fetchval(
        "SELECT count(*) FROM ff.execution WHERE $1::text IS NULL OR public_state = $1", state
    )


async def outcome_transactions(db: Connection) -> int:
    """How many transactions wrote the outcomes that are recorded."""
    return await db.fetchval("SELECT count(DISTINCT xmin::text) FROM ff.completion_event")


async def creating_transactions(db: Connection) -> int:
    """How many transactions created the executions that there are."""
    return await db.fetchval("SELECT count(DISTINCT xmin::text) FROM ff.exec_body")


async def told_twice(db: Connection) -> int:
    """How many executions have more than one outcome."""
    return await db.fetchval(
        "SELECT count(*) FROM (SELECT FROM ff.completion_event"
        " GROUP BY execution_id HAVING count(*) > 1) AS twice"
    )


async def lease_expired_events(db: Connection) -> int:
    """How many leases ran out, over the whole history."""
    return await db.fetchval("SELECT count(*) FROM ff.lease_event WHERE event_type = 'expired'")


async def worker_connections(db: Connection) -> int:
    """How many connections workers hold to this database."""
    return await db.fetchval(f"SELECT count(*) {WORKER_CONNECTIONS}")


async def cut_worker_connections(db: Connection) -> int:
    """Terminate every connection of a worker; how many there were."""
    return await db.fetchval(f"SELECT count(pg_terminate_backend(pid)) {WORKER_CONNECTIONS}")


async def claim_waits(db: Connection) -> bool:
    """Does a claim wait for a lock?"""
    return await db.fetchval(
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock' AND query LIKE '%-- lifecycle.claim%')"
    )


async def database_time(db: Connection) -> datetime:
    return await db.fetchval("SELECT clock_timestamp()")


async def has_asked(db: Connection, statement: str, since: datetime) -> bool:
    """Is this the last statement of a connection, sent after `since`? Ask outside a transaction."""
    return await db.fetchval(
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND query_start > $2"
        " AND query LIKE '%-- ' || $1 || '%')",
        statement,
        since,
    )


async def is_idle(db: Connection) -> bool:
    """Is a worker registered as waiting for some lane?"""
    return await db.fetchval("SELECT EXISTS (SELECT FROM ff.waiter WHERE topic LIKE 'lane:%')")
