"""Where tests of operators begin: executions in every state, and what was told of an action."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.engine.operators.block_execution_for_admission import block_execution_for_admission
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.suspensions.suspend import suspend
from flowfabric.engine.suspensions.suspension import SuspendRequest
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.states import TerminalOutcome
from tests import given

T = TypeVar("T")
Another = Callable[[], Awaitable[Connection]]

NO_DATABASE: Any = None
"""In place of a connection: a check that comes before any SQL does not need one."""

bad_actors = pytest.mark.parametrize("actor", ["", "a\x00b", "\ud800", "x" * 257])


class Action(msgspec.Struct, frozen=True):
    """One operator event."""

    event_type: str
    actor: str
    reason: str | None
    details: dict[str, Any]


async def actions(db: Connection, execution_id: ExecutionId | None = None) -> list[Action]:
    """What operators did to one execution, or to anything, in order."""
    return [
        Action(row["event_type"], row["actor"], row["reason"], msgspec.json.decode(row["details"]))
        for row in await db.fetch(
            "SELECT * FROM ff.operator_event WHERE $1::uuid IS NULL OR execution_id = $1"
            " ORDER BY event_id",
            None if execution_id is None else execution_id.uuid,
        )
    ]


WAITING = ("waiting", "released")
RUNNABLE = (*WAITING, "delayed", "retrying", "blocked")
TERMINAL = ("completed", "failed", "cancelled", "expired", "skipped")


async def execution(db: Connection, state: str, **fields: Any) -> ExecutionId:
    """One execution in that state: waiting, delayed, active, suspended … or ended."""
    match state:
        case "waiting":
            return await given.created(db, **fields)
        case "delayed":
            return await given.created(db, delay=60, **fields)
        case "blocked":
            execution_id = await given.created(db, **fields)
            await block_execution_for_admission(db, execution_id, "waiting_for_quota")
            return execution_id
        case "cancelled":
            execution_id = await given.created(db, **fields)
            await cancel_execution(db, execution_id, reason="no")
            return execution_id
        case "expired":
            before = instant(await db.fetchval("SELECT ff.now_ms()") - 2000)
            [late] = await create_execution(db, [given.new(deadline=1, **fields)], now=before)
            await expire_executions(db, limit=1)
            return late.execution_id
        case "skipped":
            execution_id = await given.created(db, **fields)
            await terminalize(db, [execution_id], outcome=TerminalOutcome.SKIPPED)
            return execution_id
        case "retrying":
            fields.setdefault("policy", given.retrying())
    lease = await given.claimed(db, **fields)
    match state:
        case "active":
            pass
        case "suspended":
            async with db.transaction():
                await suspend(db, [SuspendRequest(lease=lease, keeps_waitpoints=True)])
        case "released":
            await release(db, [lease])
        case "completed":
            await complete(db, [Completion(lease, b"done")])
        case "failed" | "retrying":
            await fail(db, [Failure(lease=lease, reason="boom")])
        case _:
            raise AssertionError(state)
    return lease.execution_id


async def waiting(db: Connection, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """`call`, started on a connection of its own and seen to wait for a lock that another holds."""
    task = asyncio.create_task(call)
    async with asyncio.timeout(10):
        while not await db.fetchval(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()"
            " AND cardinality(pg_blocking_pids(pid)) > 0)"
        ):
            assert not task.done(), "it did not wait"
    return task
