"""Numbers that are read from the database."""

from __future__ import annotations

from datetime import timedelta

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.counters import CANCEL_BACKLOG, EXECUTIONS, NOTIFY_LAG, OUTBOX_PENDING, QUEUE_AGE
from flowfabric.db.rows import Connection
from flowfabric.engine import Engine
from flowfabric.metrics import DatabaseGauges
from flowfabric.testing import Clock
from tests import given


@pytest.mark.session("listens")
async def test_what_waits_in_each_lane_is_read_and_kept_for_a_while(
    ff_dsn: str, db: Connection, clock: Clock
) -> None:
    engine = await Engine.connect(DatabaseConfig(dsn=ff_dsn), role="tests")
    try:
        await engine.create_execution([given.new(), given.new(), given.new(delay=3600)])
        await clock.advance(timedelta(seconds=40))
        gauges = DatabaseGauges(engine)
        await gauges.refresh()
        await engine.create_execution([given.new()])
        await gauges.refresh()

        read = EXECUTIONS.snapshot()
        assert (read["default", "waiting"], read["default", "delayed"]) == (2, 1)
        assert QUEUE_AGE.snapshot()["default",] == 40
        assert (OUTBOX_PENDING.snapshot(), CANCEL_BACKLOG.snapshot()) == ({(): 0}, {(): 0})
        engine.listener.start()
        await engine.listener.connected.wait()
        await DatabaseGauges(engine).refresh()
        assert EXECUTIONS.snapshot()["default", "waiting"] == 3
        assert 0 <= NOTIFY_LAG.snapshot()[()] < 2
    finally:
        await engine.close()

    await DatabaseGauges(engine).refresh()
    assert EXECUTIONS.snapshot() == {}, "while the database is away nothing is claimed"
