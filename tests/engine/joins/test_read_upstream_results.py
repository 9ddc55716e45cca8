"""What a member is told about its upstreams."""

from __future__ import annotations

from flowfabric.engine.engine import Engine
from tests.engine.flows.graphs import submitted


async def test_each_upstream_has_the_state_that_users_see(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>d b>d c>d")
    await flow.claim("a")
    await flow.complete("b")

    found = await ff_engine.read_upstream_results(flow["d"])

    assert [(each.name, each.public_state) for each in found] == [
        ("a", "active"),
        ("b", "completed"),
        ("c", "waiting"),
    ]
