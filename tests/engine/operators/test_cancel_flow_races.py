"""A cancel beside what workers, dispatchers and builders do at the same time."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.add_execution_to_flow import add_execution_to_flow
from flowfabric.engine.flows.cancel_flow_header import (
    FlowCancelAccepted,
    cancel_flow_header,
)
from flowfabric.engine.flows.end_cancelled_members import end_cancelled_members
from flowfabric.engine.joins.dispatch_completions import dispatch_completions
from flowfabric.engine.lifecycle.claim import Claimed, claim
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete
from flowfabric.engine.lifecycle.end_parked_members import end_parked_members
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.errors import EngineError, FlowAlreadyTerminal, RetryExhausted
from tests import given
from tests.engine.controls import Another, waiting
from tests.engine.flows.graphs import Graph, done_or_waiting, minted, submitted

T = TypeVar("T")


async def dispatched(conn: Connection) -> int:
    async with conn.transaction():
        return await dispatch_completions(conn)


async def closed(flow: Graph, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """`call`, started and seen to have cancelled the flow itself."""
    task = asyncio.create_task(call)
    async with asyncio.timeout(10):
        while (await flow.flow())["public_flow_state"] == "open":
            pass
    return task


async def test_of_two_cancels_at_once_one_is_told(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await submitted(ff_engine, "a>b")
    first = await another()
    async with first.transaction():
        header = await cancel_flow_header(first, flow.flow_id, reason="1")
        second = await waiting(db, ff_engine.cancel_flow(flow.flow_id, reason="2"))
    answer = await second

    assert isinstance(header, FlowCancelAccepted)
    assert not isinstance(answer, FlowCancelAccepted)
    assert answer.stored_cancel_reason == "1"
    assert await flow.count("operator_event") == 1
    assert await flow.states() == "a:c b:c"


async def test_a_member_that_is_added_meanwhile_waits_and_is_refused(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await submitted(ff_engine, "a")
    new = await given.created(db, execution_id=minted(flow.flow_id))
    operator, builder = await another(), await another()

    async def add() -> object:
        async with builder.transaction():
            return await add_execution_to_flow(builder, flow.flow_id, new)

    async with operator.transaction():
        await cancel_flow_header(operator, flow.flow_id)
        adding = await given.blocked(db, builder, add())

    with pytest.raises(FlowAlreadyTerminal):
        await adding


async def test_a_claim_that_comes_while_it_is_parked_gets_nothing(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await submitted(ff_engine, "a b c")
    operator = await another()
    async with operator.transaction():
        await cancel_flow_header(operator, flow.flow_id)
        assert await claim(db, given.WORKER, ttl=30, limit=10) == []
    assert await claim(db, given.WORKER, ttl=30, limit=10) == []


async def test_one_that_completes_while_the_flow_is_cancelled_has_completed(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await submitted(ff_engine, "a>b")
    [lease] = await flow.claim("a")
    worker = await another()
    async with worker.transaction():
        await complete(worker, [Completion(lease, b"done")])
        cancelling = await closed(flow, ff_engine.cancel_flow(flow.flow_id))
        assert await flow.states() == "a:a b:c"
    answer = await cancelling

    assert isinstance(answer, FlowCancelAccepted)
    assert flow.named(answer.member_execution_ids) == ["a", "b"]
    assert answer.cancel_pending == 0
    assert await flow.states() == "a:ok b:c"
    await flow.carry_all()


async def test_one_that_waits_for_its_end_to_complete_is_refused(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await submitted(ff_engine, "a")
    [lease] = await flow.claim("a")
    await ff_engine.cancel_flow_header(flow.flow_id)
    operator, worker = await another(), await another()
    async with operator.transaction():
        await end_cancelled_members(operator, flow.flow_id)
        completing = await given.blocked(db, worker, complete(worker, [Completion(lease, b"")]))
    [answer] = await completing

    assert isinstance(answer, EngineError)
    assert await flow.told("a") == ["cancelled"]


async def test_a_promotion_that_waits_for_the_header_does_not_happen(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await submitted(ff_engine, "a>b")
    await flow.complete("a")
    operator, carrier = await another(), await another()
    async with operator.transaction():
        await cancel_flow_header(operator, flow.flow_id)
        carrying = await given.blocked(db, carrier, dispatched(carrier))
    await carrying

    assert (await flow.row("b"))["blocking_reason"] == "paused_by_flow_cancel"
    await ff_engine.cancel_flow(flow.flow_id)
    assert await flow.states() == "a:ok b:c"


async def test_a_skip_that_waits_for_the_header_does_not_happen(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    """Members of a cancelled flow end cancelled, whatever the order of events."""
    flow = await submitted(ff_engine, "a>b")
    await flow.fail("a")
    operator, carrier = await another(), await another()
    async with operator.transaction():
        await cancel_flow_header(operator, flow.flow_id)
        carrying = await given.blocked(db, carrier, dispatched(carrier))
    await carrying

    await ff_engine.cancel_flow(flow.flow_id)
    assert await flow.states() == "a:f b:c"
    await flow.carry_all()


async def runs_again(db: Connection, flow: Graph) -> list[str]:
    """Who of a cancelled flow a worker gets."""
    tasks = await claim(db, given.WORKER, ttl=30, limit=10)
    return flow.named([task.lease.execution_id for task in tasks])


async def test_one_that_fails_just_before_the_pending_ones_are_cancelled_does_not_run_again(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    """The failure is written, not committed, when the cancel looks at the members."""
    flow = await submitted(ff_engine, "a b", fields={"a": {"policy": given.retrying(3)}})
    [lease] = await flow.claim("a")
    worker = await another()
    async with worker.transaction():
        await fail(worker, [Failure(lease=lease, reason="boom", retry_after=0)])
        cancelling = await closed(
            flow, ff_engine.cancel_flow(flow.flow_id, policy="cancel_pending")
        )
    await cancelling

    assert await runs_again(db, flow) == []
    await end_parked_members(db, limit=10)
    assert await flow.states() == "a:c b:c"


async def test_one_that_fails_while_all_are_cancelled_does_not_run_again(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    """The failure waits for the header, and goes on once the flow is cancelled."""
    flow = await submitted(ff_engine, "a b", fields={"a": {"policy": given.retrying(3)}})
    [lease] = await flow.claim("a")
    failure = Failure(lease=lease, reason="boom", retry_after=0)
    worker, operator = await another(), await another()
    async with operator.transaction():
        await cancel_flow_header(operator, flow.flow_id)
        failing = await given.blocked(db, worker, fail(worker, [failure]))
    await failing

    assert await runs_again(db, flow) == []
    await ff_engine.cancel_flow(flow.flow_id)
    assert await flow.states() == "a:c b:c"


async def test_one_that_is_replayed_meanwhile_does_not_run_again(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    """The replay is written, not committed, when the cancel looks at the members."""
    flow = await submitted(ff_engine, "a b")
    await flow.fail("a")
    await flow.carry_all()
    operator = await another()
    async with operator.transaction():
        await replay_execution(operator, flow["a"])
        cancelling = await done_or_waiting(db, ff_engine.cancel_flow(flow.flow_id))
    await cancelling

    assert await runs_again(db, flow) == []
    assert await flow.states() == "a:c b:c"
    await flow.carry_all()


async def test_a_cancel_waits_neither_for_a_member_nor_for_a_dispatch_that_does(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    """The dispatch promotes the later member and skips the earlier one; the cancel takes both."""
    flow = await submitted(ff_engine, "a>early b>late")
    assert flow["early"] < flow["late"]
    await flow.fail("a")
    await flow.complete("b")
    holder, carrier = await another(), await another()

    async with holder.transaction():
        await lock_executions(holder, [flow["early"]])
        carrying = await given.blocked(db, carrier, dispatched(carrier))
        header = await ff_engine.cancel_flow_header(flow.flow_id)
        assert isinstance(header, FlowCancelAccepted)
        assert flow.named(header.member_execution_ids) == ["early", "late"]

    await carrying
    await ff_engine.cancel_flow(flow.flow_id)
    assert await flow.states() == "a:f b:ok early:c late:c"
    await flow.carry_all()


class Shift:
    """Workers that claim, complete and dispatch as fast as they can until they are stopped."""

    def __init__(self, conns: list[Connection]) -> None:
        self._stopped = asyncio.Event()
        self._working = [asyncio.create_task(self._work(conn)) for conn in conns]
        self.kept: list[Claimed] = []
        self.done = 0

    async def _work(self, conn: Connection) -> None:
        while not self._stopped.is_set():
            tasks = await claim(conn, given.WORKER, ttl=30, limit=4)
            kept, ending = tasks[:1], tasks[1:]
            self.kept += kept
            answers = await complete(conn, [Completion(task.lease) for task in ending])
            self.done += sum(isinstance(answer, Completed) for answer in answers)
            await dispatched(conn)

    async def stop(self) -> None:
        self._stopped.set()
        await asyncio.gather(*self._working)


async def busy(engine: Engine, conns: list[Connection]) -> tuple[Graph, Shift]:
    """A flow of a thousand members that is in the middle of its work."""
    flow = await submitted(engine, " ".join(f"a{number}>b{number}" for number in range(500)))
    shift = Shift(conns)
    async with asyncio.timeout(20):
        while await flow.count("completion_event") < 30:
            pass
    return flow, shift


async def test_once_it_has_returned_no_worker_succeeds_any_more(
    ff_engine: Engine, another: Another
) -> None:
    conns = [await another() for _ in range(6)]
    flow, shift = await busy(ff_engine, conns)
    try:
        await _insistent_cancel(flow)
    finally:
        succeeded = await _successes(flow)
        await shift.stop()

    assert await _successes(flow) == succeeded == shift.done
    late = await complete(conns[0], [Completion(task.lease) for task in shift.kept])
    assert not any(isinstance(each, Completed) for each in late)
    [alive] = await flow.fetch(
        "SELECT count(*) FROM ff.execution WHERE lifecycle_phase <> 'terminal'"
    )
    assert alive[0] == 0
    await flow.carry_all()


async def test_one_call_is_enough_however_busy_the_flow_is(
    ff_engine: Engine, another: Another
) -> None:
    conns = [await another() for _ in range(6)]
    for _ in range(3):
        flow, shift = await busy(ff_engine, conns)
        try:
            answer = await ff_engine.cancel_flow(flow.flow_id)
        finally:
            await shift.stop()
        assert isinstance(answer, FlowCancelAccepted)
        await flow.carry_all()


async def _insistent_cancel(flow: Graph) -> None:
    """A caller who is told to try again tries again."""
    for _ in range(200):
        with contextlib.suppress(RetryExhausted):
            await flow.engine.cancel_flow(flow.flow_id)
            return
    raise AssertionError("never")


async def _successes(flow: Graph) -> int:
    [row] = await flow.fetch("SELECT count(*) FROM ff.completion_event WHERE outcome = 'success'")
    return row[0]
