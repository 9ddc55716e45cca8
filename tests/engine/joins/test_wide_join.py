"""A thousand upstreams of one join that end together, carried by everybody at once."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.dispatch_completions import dispatch_completions
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.joins import AllOf, JoinPolicy, Quorum
from tests import given
from tests.engine.controls import Another
from tests.engine.flows.graphs import fan_in, submitted

UPSTREAMS, WORKERS = 1000, 16


def chunks(leases: list[Lease], size: int) -> Iterator[list[Lease]]:
    for first in range(0, len(leases), size):
        yield leases[first : first + size]


async def worker(conn: Connection, leases: list[Lease], at_once: int) -> int:
    """Completes what it holds and dispatches after every batch; no conflict is tried again."""
    carried = 0
    for chunk in chunks(leases, at_once):
        answers = await complete(conn, [Completion(lease, b"1") for lease in chunk])
        assert all(isinstance(answer, Completed) for answer in answers)
        while True:
            async with conn.transaction():
                moved = await dispatch_completions(conn)
            if not moved:
                break
            carried += moved
    return carried


@pytest.mark.parametrize(
    ("policy", "at_once"),
    [
        pytest.param(AllOf(), 63, marks=pytest.mark.timing),
        pytest.param(AllOf(), 8, marks=pytest.mark.timing),
        (AllOf(), 1),
        pytest.param(Quorum(UPSTREAMS, "let_run"), 8, marks=pytest.mark.timing),
    ],
)
async def test_a_thousand_ends_from_sixteen_connections_are_counted_exactly(
    db: Connection,
    ff_engine: Engine,
    another: Another,
    request: pytest.FixtureRequest,
    policy: JoinPolicy,
    at_once: int,
) -> None:
    flow = await submitted(ff_engine, fan_in(UPSTREAMS), policies={"d": policy})
    leases: list[Lease] = []
    while tasks := await claim(db, given.WORKER, ttl=600, limit=200):
        leases += [task.lease for task in tasks]
    conns = [await another() for _ in range(WORKERS)]
    shares = [leases[number::WORKERS] for number in range(WORKERS)]
    began = time.perf_counter()

    carried = await asyncio.gather(
        *(worker(conn, share, at_once) for conn, share in zip(conns, shares, strict=True))
    )

    took = time.perf_counter() - began
    request.node.user_properties.append(("seconds", round(took, 3)))
    assert sum(carried) == UPSTREAMS
    assert await flow.group("d") == f"{UPSTREAMS}/0/0/0 satisfied"
    assert await flow.state("d") == "waiting"
    assert took < 5 or at_once == 1  # two thousand commits take their time


async def test_a_thousand_downstreams_of_one_end_are_promoted_in_one_dispatch(
    ff_engine: Engine,
) -> None:
    arrows = " ".join(f"a>d{number}" for number in range(UPSTREAMS))
    flow = await submitted(ff_engine, arrows)
    await flow.complete("a")

    assert await flow.carry() == 1

    [row] = await flow.fetch("SELECT count(*) FROM ff.execution WHERE public_state = 'waiting'")
    assert row[0] == UPSTREAMS
