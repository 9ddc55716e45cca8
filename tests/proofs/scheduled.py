"""Schedules in a crowd: none is due; then a few are, a few queue, and the ledger has old rows."""

from __future__ import annotations

from typing import Final

from flowfabric.db.rows import Connection
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.schedules.create_schedule import create_schedules
from flowfabric.engine.schedules.trigger_schedule import trigger_schedule
from flowfabric.ids import ExecutionId
from tests.engine.schedules.stored import define

_FEW: Final = 5
_AT_ONCE: Final = 1000

_FIRED: Final = """
INSERT INTO ff.schedule_fire (partition_key, namespace, name, fire_at_ms, outcome, recorded_at_ms)
SELECT partition_key, namespace, name, 1, 'missed', ff.now_ms() FROM ff.schedule
"""
_DUE: Final = f"""
UPDATE ff.schedule SET next_fire_at_ms = ff.now_ms()
 WHERE name IN (SELECT name FROM ff.schedule ORDER BY name LIMIT {_FEW});
UPDATE ff.schedule_fire SET recorded_at_ms = 1
 WHERE name IN (SELECT name FROM ff.schedule ORDER BY name LIMIT {_FEW});
"""


async def schedules_alive(db: Connection, *, live: int) -> None:
    """So many schedules, of which none is due, each with a row in the ledger."""
    for first in range(0, live, _AT_ONCE):
        async with db.transaction():
            await create_schedules(
                db, [define(f"s-{n}", every=86_400) for n in range(first, first + _AT_ONCE)][:live]
            )
    await db.execute(_FIRED)


async def schedules_due(db: Connection) -> None:
    """A few are due, a few have an execution whose turn it is, and a few rows are old."""
    await db.execute(_DUE)
    for number in range(_FEW):
        name = f"queue-{number}"
        async with db.transaction():
            await create_schedules(db, [define(name, every=86_400, overlap="queue_one")])
            first = await _triggered(db, name)
            await _triggered(db, name)
            await cancel_execution(db, first, reason="over")


async def _triggered(db: Connection, name: str) -> ExecutionId:
    made = (await trigger_schedule(db, name)).execution_id
    assert made is not None
    return made
