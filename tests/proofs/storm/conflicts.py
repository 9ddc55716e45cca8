"""G21: a transaction that the server refuses because of another one is run again, unnoticed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.db.steps import COMMIT, stepped
from flowfabric.db.transaction import ATTEMPTS
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.errors import RetryExhausted
from flowfabric.ids import ExecutionId
from tests import given

STATES: Final = ("40001", "40P01")
"""A serialization failure, and a deadlock."""

Control = Callable[[Engine, ExecutionId], Awaitable[Any]]
CONTROLS: Final[dict[str, Control]] = {
    "change_priority": lambda engine, each: engine.change_priority(each, 7),
    "cancel_execution": lambda engine, each: engine.cancel_execution(each, reason="no"),
    "block_execution_for_admission": lambda engine, each: engine.block_execution_for_admission(
        each, "paused_by_operator"
    ),
    "revoke_lease": lambda engine, each: engine.revoke_lease(each, reason="stuck"),
    "replay_execution": lambda engine, each: engine.replay_execution(each),
}
HELD: Final = frozenset({"revoke_lease"})
ENDED: Final = frozenset({"replay_execution"})


class Refused(msgspec.Struct):
    """What was counted over all calls that the server refused to commit."""

    calls: int = 0
    wrong: list[str] = msgspec.field(default_factory=list[str])


async def refused(engine: Engine) -> Refused:
    """Every control meets every conflict once, twice, and as often as it is tried at most."""
    found = Refused()
    for name, control in CONTROLS.items():
        for state in STATES:
            for times in range(1, ATTEMPTS + 1):
                subject = await _subject(engine, name)
                told = await _told(engine, control, subject, state, times)
                expected = "RetryExhausted" if times == ATTEMPTS else "done"
                found.calls += 1
                if told != expected:
                    found.wrong.append(f"{name}, {times} x {state}: {told}")
    return found


async def _subject(engine: Engine, name: str) -> ExecutionId:
    new = given.new(lane_id="apart")
    await engine.create_execution([new])
    if name in HELD | ENDED:
        worker = Claimant(worker_id="w", worker_instance_id="w-1", lanes=("apart",))
        for task in await engine.claim(worker, ttl=600, limit=100):
            if name in ENDED:
                await engine.complete([Completion(task.lease)])
    return new.execution_id


async def _told(
    engine: Engine, control: Control, subject: ExecutionId, state: str, times: int
) -> str:
    left = times

    async def refuse(conn: Connection, name: str) -> None:
        nonlocal left
        if name == COMMIT and left:
            left -= 1
            raising = f"DO $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '{state}'; END $$"
            await conn.execute(raising)

    try:
        with stepped(refuse):
            await control(engine, subject)
    except RetryExhausted:
        return "RetryExhausted"
    except Exception as error:
        return repr(error)
    return "done"
