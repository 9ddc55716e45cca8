"""Sixty-four controls on different executions, at once, from four processes: none gives up."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.ids import ExecutionId
from tests import given
from tests.engine.controls import actions

PROCESSES, EACH = 4, 16
BEFORE = {
    "revoke": "active",  # first: a claim takes whatever waits
    "cancel": "waiting",
    "replay": "cancelled",
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
async def controller(dsn: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.engine.operators.controller", dsn, str(EACH)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def said(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()


@pytest.mark.slow
async def test_none_gives_up(db: Connection, ff_engine: Engine, ff_dsn: str) -> None:
    refused: dict[str, list[str]] = {}
    acts: dict[str, int] = {}
    async with AsyncExitStack() as stack, asyncio.timeout(110):
        processes = [await stack.enter_async_context(controller(ff_dsn)) for _ in range(PROCESSES)]
        assert [await said(process) for process in processes] == ["ready"] * PROCESSES
        for control, before in BEFORE.items():
            executions = await prepared(db, ff_engine, before)
            refused[control] = await at_once(control, processes, executions)
            acts[control] = len(await actions(db))

    assert refused == {control: ["none"] * PROCESSES for control in BEFORE}
    assert acts == dict.fromkeys(BEFORE, PROCESSES * EACH)


async def at_once(
    control: str, processes: list[asyncio.subprocess.Process], executions: list[ExecutionId]
) -> list[str]:
    """What each process was refused, all of them told in the same moment."""
    for number, process in enumerate(processes):
        assert process.stdin is not None
        share = map(str, executions[number::PROCESSES])
        process.stdin.write(f"{control} {' '.join(share)}\n".encode())
    return [await said(process) for process in processes]
