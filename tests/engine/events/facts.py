"""Taking events from a subscription, and causing them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from flowfabric.db.rows import Connection
from flowfabric.engine.events.outbox import Event
from flowfabric.engine.events.subscribe import Subscription
from flowfabric.engine.lifecycle.claim import Claimed, claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.ids import ExecutionId
from tests import given

E = TypeVar("E", bound=Event)


async def taken(subscription: Subscription[E], count: int = 1) -> list[E]:
    """The next events."""
    async with asyncio.timeout(20):
        return [await anext(subscription) for _ in range(count)]


async def true(fact: Callable[[], object], *, within: float = 10) -> None:
    """Wait until something in this process is so."""
    async with asyncio.timeout(within):
        while not fact():  # noqa: ASYNC110  the fact signals nothing
            await asyncio.sleep(0.001)


async def completed(db: Connection, **fields: Any) -> ExecutionId:
    """One execution that was claimed and ended with success."""
    lease = await given.claimed(db, **fields)
    await complete(db, [Completion(lease)])
    return lease.execution_id


async def claimed_many(db: Connection, count: int) -> list[Claimed]:
    """That many executions, created and claimed: one lease event each."""
    await create_execution(db, [given.new() for _ in range(count)])
    return await claim(db, given.WORKER, ttl=60, limit=count)


async def emitted(
    db: Connection,
    what: str = "lane_state_changed",
    *,
    execution: ExecutionId | None = None,
    facts: str = "{}",
) -> None:
    """One operator event."""
    await db.execute(
        "SELECT ff.emit_operator_event($1::smallint, $2, NULL, $3, 'ann', 'because', $4::jsonb)",
        0 if execution is None else execution.partition_key,
        None if execution is None else execution.uuid,
        what,
        facts,
    )
