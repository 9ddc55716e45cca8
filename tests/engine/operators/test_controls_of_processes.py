"""Sixty-four controls on different executions, at once, from four processes: none gives up."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.ids import ExecutionId
from tests import given
from tests.engine.controls import actions

PROCESSES, EACH = 4, 16
BEFORE = {
    "cancel": "waiting",
    "replay": "cancelled",
    "revoke": "active",
    "priority": "waiting",
    "block": "waiting",
    "unblock": "paused",
}


async def prepared(db: Connection, engine: Engine, state: str) -> list[ExecutionId]:
    new = [given.new() for _ in range(PROCESSES * EACH)]
    await engine.create_execution(new)
    executions = [each.execution_id for each in new]
    match state:
        case "active":
            assert len(await claim(db, given.WORKER, ttl=600, limit=len(new))) == len(new)
        case "cancelled":
            await engine.cancel_executions(executions, reason="no")
        case "paused":
            await engine.block_executions_for_admission(executions, "paused_by_operator")
        case _:
            pass
    await db.execute("DELETE FROM ff.operator_event")
    return executions


@asynccontextmanager
async def controller(
    dsn: str, control: str, executions: list[ExecutionId]
) -> AsyncGenerator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.engine.operators.controller", dsn, control, *map(str, executions)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def said(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()


@pytest.mark.slow
@pytest.mark.parametrize("control", BEFORE)
async def test_none_gives_up(db: Connection, ff_engine: Engine, ff_dsn: str, control: str) -> None:
    executions = await prepared(db, ff_engine, BEFORE[control])
    shares = [executions[number::PROCESSES] for number in range(PROCESSES)]
    async with asyncio.timeout(110):
        refused = await at_once(ff_dsn, control, shares)

    assert refused == ["none"] * PROCESSES
    assert len(await actions(db)) == len(executions)


async def at_once(dsn: str, control: str, shares: list[list[ExecutionId]]) -> list[str]:
    """All processes are ready before the first one begins."""
    ready, go = asyncio.Barrier(len(shares)), b"go\n"

    async def one(share: list[ExecutionId]) -> str:
        async with controller(dsn, control, share) as process:
            assert await said(process) == "ready"
            await ready.wait()
            assert process.stdin is not None
            process.stdin.write(go)
            await process.stdin.drain()
            return await said(process)

    return list(await asyncio.gather(*map(one, shares)))
