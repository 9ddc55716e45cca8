"""How long `ff executions cancel` of a whole lane takes; the figure is in the test's report."""

import time

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from tests import given
from tests.cli.conftest import Shell

SIZE = 10_000


@pytest.mark.timing
async def test_ten_thousand_are_cancelled_within_seconds(
    shell: Shell, db: Connection, ff_engine: Engine, request: pytest.FixtureRequest
) -> None:
    for _ in range(SIZE // 1000):
        await ff_engine.create_execution([given.new(lane_id="bulk") for _ in range(1000)])
    began = time.perf_counter()

    answer = await shell.ff("executions", "cancel", "--lane", "bulk", "--yes")

    took = time.perf_counter() - began
    request.node.user_properties.append(("seconds", round(took, 2)))
    assert (answer.code, answer.out) == (0, f"cancelled {SIZE} executions\n")
    assert answer.err.splitlines()[-1] == f"  {SIZE} of {SIZE}"
    left = await db.fetchval("SELECT count(*) FROM ff.execution WHERE public_state <> 'cancelled'")
    assert left == 0
    assert await db.fetchval("SELECT count(*) FROM ff.operator_event") == SIZE
    assert took < 20
