"""Operators who work on different executions do not get in each other's way."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.ids import ExecutionId
from tests import given
from tests.engine.controls import actions

Control = Callable[[Engine, ExecutionId], Awaitable[Any]]

CONTROLS: dict[str, tuple[str, Control]] = {
    "cancel": ("waiting", lambda engine, each: engine.cancel_execution(each, reason="no")),
    "cancel what runs": ("active", lambda engine, each: engine.cancel_execution(each, reason="no")),
    "revoke": ("active", lambda engine, each: engine.revoke_lease(each, reason="stuck")),
    "priority": ("waiting", lambda engine, each: engine.change_priority(each, 7)),
    "replay": ("cancelled", lambda engine, each: engine.replay_execution(each)),
    "block": (
        "waiting",
        lambda engine, each: engine.block_execution_for_admission(each, "paused_by_operator"),
    ),
}


@pytest.mark.parametrize(("state", "control"), CONTROLS.values(), ids=CONTROLS)
async def test_twenty_at_once_all_succeed(
    db: Connection, ff_engine: Engine, state: str, control: Control
) -> None:
    executions = [await given.created(db) for _ in range(20)]
    if state == "active":
        await claim(db, given.WORKER, ttl=30, limit=20)
    if state == "cancelled":
        for each in executions:
            await cancel_execution(db, each, reason="no")
        await db.execute("DELETE FROM ff.operator_event")

    answers = await asyncio.gather(
        *[control(ff_engine, each) for each in executions], return_exceptions=True
    )

    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    assert len(await actions(db)) == 20
