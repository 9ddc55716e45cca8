"""A flow that is open in browsers is read once, whoever looks, and not at all once nobody does."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from uuid import UUID

from bench.flow_graphs import Hand, submit
from flowfabric import Engine
from flowfabric.dashboard.flows.reading import FlowReader
from flowfabric.dashboard.flows.watching import FlowWatch
from flowfabric.testing import Clock


class Counting:
    """The engine, with a count of what is read of flows."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.reads = engine, 0

    async def read_flow_states(self, flow_id: UUID) -> Any:
        self.reads += 1
        return await self._engine.read_flow_states(flow_id)

    async def describe_flow(self, flow_id: UUID) -> Any:
        self.reads += 1
        return await self._engine.describe_flow(flow_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


async def test_viewers_of_a_flow_share_its_reads_and_each_hears_what_is_new_to_it(
    ff_engine: Engine,
) -> None:
    flow_id, _ = await submit(ff_engine, "short", [("a", "b")], lane="l")
    counting = Counting(ff_engine)
    watch = FlowWatch(cast("Engine", counting))
    first, second = watch.changes(flow_id), watch.changes(flow_id)

    whole = await anext(first)
    assert whole["s"] == [[0, "waiting"], [1, "waiting_children"]]
    assert await anext(second) == whole
    assert counting.reads == 1
    await Hand(ff_engine, "l").claim()
    assert await anext(first) == {"rev": whole["rev"], "s": [[0, "active"]]}
    assert await anext(second) == {"rev": whole["rev"], "s": [[0, "active"]]}

    await first.aclose()
    await second.aclose()
    await asyncio.sleep(0)
    assert watch.watched == 0
    await watch.close()


async def test_requests_of_one_second_share_one_read_and_a_change_here_is_seen_at_once(
    ff_engine: Engine, clock: Clock
) -> None:
    flow_id, _ = await submit(ff_engine, "short", [("a", "b")], lane="l")
    counting = Counting(ff_engine)
    reader = FlowReader(cast("Engine", counting))
    now = await clock.now()

    one, other = await asyncio.gather(reader.read(flow_id, now), reader.read(flow_id, now))
    again = await reader.read(flow_id, now)

    assert one is other is again
    assert counting.reads == 1
    reader.forget(flow_id)
    assert await reader.read(flow_id, now) is not one
