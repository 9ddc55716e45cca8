"""A cancel is bounded: a member that another transaction has locked is pending, and ends later."""

import time
from collections.abc import Awaitable, Callable

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.cancel_flow_header import FlowCancelAccepted
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.errors import FlowCancelPending, OperationTimeout
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another
from tests.engine.flows.graphs import Graph, submitted
from tests.engine.operators.test_cancel_flow_races import closed

Sweep = Callable[[], Awaitable[int]]

WAIT = 0.3
LITTLE = 3.0
"""Seconds beyond `wait`, on a busy machine; a wait for the lock would take 30."""


async def timed_out(flow: Graph, policy: str = "cancel_all") -> FlowCancelPending:
    began = time.monotonic()
    with pytest.raises(FlowCancelPending) as error:
        await flow.engine.cancel_flow(flow.flow_id, policy=policy, wait=WAIT)
    assert time.monotonic() - began < WAIT + LITTLE
    return error.value


@pytest.mark.parametrize("state", ["waits", "runs"])
async def test_the_others_end_and_one_is_pending(
    ff_engine: Engine, another: Another, clock: Clock, ff_sweep: Sweep, state: str
) -> None:
    flow = await submitted(ff_engine, "a b>c d")
    if state == "runs":
        await flow.claim("a")
    holder = await another()
    async with holder.transaction():
        await lock_executions(holder, [flow["a"]])

        error = await timed_out(flow)

        assert (error.pending, error.flow_id, error.seconds) == (1, flow.flow_id, WAIT)
        assert "1 of its members" in str(error)
        assert (await flow.flow())["public_flow_state"] == "cancelled"
        assert (await flow.states()).endswith("b:c c:c d:c")
        assert await flow.count("cancel_backlog_member") == 1

    await ff_sweep()  # without a grace: the caller has given up
    assert await flow.states() == "a:c b:c c:c d:c"
    assert await flow.told("a") == ["cancelled"]
    assert await flow.count("cancel_backlog") == 0


async def test_one_that_is_released_in_time_ends_in_the_same_call(
    ff_engine: Engine, another: Another
) -> None:
    flow = await submitted(ff_engine, "a b")
    holder = await another()
    async with holder.transaction():
        await lock_executions(holder, [flow["a"]])
        cancelling = await closed(flow, ff_engine.cancel_flow(flow.flow_id))
        assert await flow.states() == "a:w b:c"
    answer = await cancelling

    assert isinstance(answer, FlowCancelAccepted)
    assert answer.cancel_pending == 0
    assert await flow.states() == "a:c b:c"


async def test_a_flow_that_is_itself_locked_stays_as_it_is(
    ff_engine: Engine, another: Another
) -> None:
    flow = await submitted(ff_engine, "a")
    holder = await another()
    async with holder.transaction():
        await holder.fetch("SELECT FROM ff.flow_core WHERE flow_id = $1 FOR UPDATE", flow.flow_id)
        began = time.monotonic()
        with pytest.raises(OperationTimeout) as error:
            await ff_engine.cancel_flow(flow.flow_id, wait=WAIT)
        assert time.monotonic() - began < WAIT + LITTLE

    assert not isinstance(error.value, FlowCancelPending)
    assert (await flow.flow())["public_flow_state"] == "open"
    assert await flow.states() == "a:w"


async def test_who_does_not_wait_is_not_kept_waiting(ff_engine: Engine, another: Another) -> None:
    flow = await submitted(ff_engine, "a b")
    holder = await another()
    async with holder.transaction():
        await lock_executions(holder, [flow["a"]])

        answer = await ff_engine.cancel_flow(flow.flow_id, wait=None)

    assert isinstance(answer, FlowCancelAccepted)
    assert answer.cancel_pending == 2


async def test_one_that_is_being_claimed_may_finish_where_what_runs_goes_on(
    ff_engine: Engine, db: Connection, another: Another
) -> None:
    flow = await submitted(ff_engine, "a", fields={"a": {"policy": given.retrying(3)}})
    worker = await another()
    async with worker.transaction():
        [task] = await claim(worker, given.WORKER, ttl=30)
        cancelling = await closed(
            flow, ff_engine.cancel_flow(flow.flow_id, policy="cancel_pending")
        )
    await cancelling

    row = await flow.row("a")
    assert (row["lifecycle_phase"], row["flow_cancelled"]) == ("active", True)
    assert await flow.count("cancel_backlog") == 0
    await ff_engine.release([task.lease])
    assert await claim(db, given.WORKER, ttl=30) == []


async def test_nothing_runs_because_of_an_upstream_of_a_pending_member(
    ff_engine: Engine, another: Another, clock: Clock, ff_sweep: Sweep
) -> None:
    """The upstream may finish; the downstream was locked when the flow was cancelled."""
    flow = await submitted(ff_engine, "a>b")
    await flow.claim("a")
    holder = await another()
    async with holder.transaction():
        await lock_executions(holder, [flow["b"]])
        assert (await timed_out(flow, "cancel_pending")).pending == 1
    await flow.complete("a")
    await ff_engine.dispatch()

    assert await flow.states() == "a:ok b:wc"
    await ff_sweep()
    assert await flow.states() == "a:ok b:c"


async def test_a_member_that_a_sweep_cannot_end_yet_does_not_hold_up_its_flow(
    ff_engine: Engine, another: Another, ff_sweep: Sweep, clock: Clock
) -> None:
    flow = await submitted(ff_engine, "a b c")
    await ff_engine.cancel_flow_header(flow.flow_id, grace=0)
    holder = await another()
    async with holder.transaction():
        await lock_executions(holder, [flow["a"]])
        await ff_sweep()
        assert await flow.states() == "a:w b:c c:c"
    await ff_sweep()

    assert await flow.states() == "a:c b:c c:c"
