"""How long a cancel takes; the figures are properties of the test's report."""

import statistics
import time

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.cancel_flow_header import FlowCancelAccepted
from flowfabric.engine.lifecycle.claim import claim
from tests import given
from tests.engine.flows.graphs import submitted

RUNS = 5


@pytest.mark.timing
@pytest.mark.parametrize("shape", ["waiting", "running", "chain"])
@pytest.mark.parametrize("size", [100, 1000])
async def test_a_flow_is_cancelled_within_moments(
    db: Connection,
    ff_engine: Engine,
    request: pytest.FixtureRequest,
    size: int,
    shape: str,
) -> None:
    took: list[float] = []
    for _ in range(RUNS):
        names = [f"m{number:04}" for number in range(size)]
        arrows = " ".join(names)
        if shape == "chain":
            arrows = " ".join(f"{names[i]}>{names[i + 1]}" for i in range(size - 1))
        flow = await submitted(ff_engine, arrows)
        while shape == "running" and await claim(db, given.WORKER, ttl=600, limit=200):
            pass
        began = time.perf_counter()

        answer = await ff_engine.cancel_flow(flow.flow_id)

        took.append(time.perf_counter() - began)
        assert isinstance(answer, FlowCancelAccepted)
        assert len(answer.member_execution_ids) == size
        assert await flow.derived() == "cancelled"
        assert await flow.count("cancel_backlog_member") == 0
        await flow.carry_all()

    figures = {"p50_ms": statistics.median(took), "p99_ms": max(took)}
    request.node.user_properties += [(name, round(s * 1000, 1)) for name, s in figures.items()]
    assert statistics.median(took) < 0.5
