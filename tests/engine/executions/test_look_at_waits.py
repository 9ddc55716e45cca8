"""One statement says whether anything has happened that handlers may wait for."""

from __future__ import annotations

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.look_at_waits import WaitsSeen, look_at_waits
from flowfabric.engine.suspensions.send_signal import NewSignal, send_signal
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from tests import given
from tests.engine.suspensions.given_suspended import leased, pending
from tests.engine.suspensions.test_deliver_approval_signal import approve

NOTHING = WaitsSeen(signal_seq=0, decided=0, decided_at=None, signals=0, over=0)


async def look(db: Connection, *executions: ExecutionId) -> list[WaitsSeen | None]:
    found = await look_at_waits(db, executions)
    return [found.get(each) for each in executions]


async def test_it_differs_after_each_thing_that_a_handler_may_wait_for(
    db: Connection, clock: Clock
) -> None:
    lease = await leased(db)
    waitpoint = await pending(db, lease)
    other, missing = await given.created(db), ExecutionId.mint()
    mine = lease.execution_id
    assert await look(db, mine, other, missing) == [NOTHING, NOTHING, None]

    async with db.transaction():
        await send_signal(db, NewSignal(execution_id=mine, signal_name="go"))
    await approve(db, waitpoint)
    assert await look(db, mine, other) == [WaitsSeen(1, 0, None, 1, 0), NOTHING]

    await clock.advance(3600)
    assert await look(db, mine) == [WaitsSeen(1, 0, None, 1, 1)]
