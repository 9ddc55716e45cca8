"""The results of a flow are those of the members that it was built with."""

import asyncio
import time
from uuid import uuid4

import pytest

from flowfabric import (
    AnyOf,
    App,
    Client,
    Ctx,
    Fail,
    FlowCancelled,
    FlowFailed,
    FlowHandle,
    NotFound,
    Quorum,
    ResultTimeout,
)
from flowfabric.app.flow import Flow
from flowfabric.client.open_engine import on_database
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.errors import FlowCancelPending
from flowfabric.states import DerivedFlowState
from tests.client.test_results import is_waited_for
from tests.engine.controls import Another
from tests.worker.facts import eventually

pytestmark = pytest.mark.timeout(30)


async def test_children_that_a_member_started_have_no_place_in_the_results(
    client: Client, ff_dsn: str
) -> None:
    app = App()

    @app.task("square")
    async def square(ctx: Ctx, number: int) -> int:
        return number * number

    @app.task("sum")
    async def total(ctx: Ctx) -> int:
        spawned = await ctx.spawn(square.call(3))
        return sum(await ctx.gather([square.call(1), square.call(2)])) + await spawned.result()

    flow = Flow("sums")
    flow.add(square.call(5), name="before")
    flow.add(total.call(), name="total")
    handle = await client.start(flow)
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert await handle.result(timeout=10) == {"before": 25, "total": 14}
    children = [each for each in await handle.members() if each.is_child]
    assert [(each.name, each.execution_kind) for each in children] == [(None, "square")] * 3


async def test_the_flow_of_a_parent_outside_flows_has_the_result_of_the_parent(
    client: Client, ff_dsn: str
) -> None:
    app = App()

    @app.task("child")
    async def child(ctx: Ctx) -> int:
        return 1

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[int]:
        return await ctx.gather([child.call()])

    handle = await client.submit(parent.call())
    await app.worker(dsn=ff_dsn).run_until_idle()

    flow_id = (await handle.describe()).flow_id
    assert flow_id is not None
    found = await client.flow(flow_id).result(timeout=10)
    assert found == {str(handle.execution_id): [1]}


async def test_a_failed_flow_is_replayed_and_gives_its_results(client: Client, ff_dsn: str) -> None:
    app = App()
    works: list[bool] = []

    @app.task("first")
    async def first(ctx: Ctx) -> int:
        if not works:
            raise Fail("closed", retryable=False)
        return 1

    @app.task("then")
    async def then(ctx: Ctx) -> int:
        return 2

    flow = Flow("pair")
    flow.add(then.call(), name="then").after(flow.add(first.call(), name="first"))
    handle = await client.start(flow)
    await app.worker(dsn=ff_dsn).run_until_idle()
    with pytest.raises(FlowFailed, match="first"):
        await handle.result(timeout=10)
    works.append(True)

    await (await handle.member("first")).replay(downstream=False)
    await app.worker(dsn=ff_dsn).run_until_idle()
    with pytest.raises(FlowFailed, match="then: skipped, although its upstreams have succeeded"):
        await handle.result(timeout=10)
    preview = await client.replay_flow(str(handle.flow_id), preview=True)
    answer = await handle.replay("open again")
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert [each.name for each in preview.run_again] == ["then"]
    assert answer.run_again == preview.run_again
    assert await handle.result(timeout=10) == {"first": 1, "then": 2}


async def test_the_result_does_not_wait_for_work_that_nothing_needs(
    client: Client, ff_dsn: str
) -> None:
    app, elsewhere = App(), App()

    @app.task("quick")
    async def quick(ctx: Ctx) -> str:
        return "done"

    @elsewhere.task("slow", lane="elsewhere")
    async def slow(ctx: Ctx) -> None: ...

    flow = Flow("race")
    first, second = flow.add(quick.call(), name="first"), flow.add(slow.call(), name="second")
    third = flow.add(slow.call(), name="third").after(second)
    flow.add(quick.call(), name="last").after(first, third, policy=AnyOf("let_run"))
    handle = await client.start(flow)
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert await handle.result(timeout=10) == {"first": "done", "last": "done"}
    assert await handle.state() is DerivedFlowState.BLOCKED


async def test_a_failed_flow_names_the_causes_and_not_what_was_cancelled_for_them(
    client: Client, ff_dsn: str
) -> None:
    app = App()

    @app.task("work")
    async def work(ctx: Ctx, fails: bool) -> None:
        if fails:
            raise Fail("no", retryable=False)

    flow = Flow("votes")
    votes = [flow.add(work.call(True), name=name) for name in ("a", "b")]
    early = flow.add(work.call(False), name="early", lane="elsewhere")
    late = flow.add(work.call(False), name="late").after(early)
    flow.add(work.call(False), name="count").after(*votes, late, policy=Quorum(2))
    handle = await client.start(flow)
    await app.worker(dsn=ff_dsn).run_until_idle()

    with pytest.raises(FlowFailed) as failed:
        await handle.result(timeout=10)

    assert sorted(failed.value.members) == ["a: no", "b: no"]
    states = {each.name: each.public_state.value for each in await handle.members()}
    assert states == {
        "a": "failed", "b": "failed", "count": "skipped", "early": "cancelled", "late": "cancelled"
    }  # fmt: skip


# Waiting.


async def started(client: Client) -> FlowHandle:
    app = App()

    @app.task("job")
    async def job(ctx: Ctx) -> None: ...

    flow = app.flow("pair")
    flow.add(job.call(), name="b").after(flow.add(job.call(), name="a"))
    return await client.start(flow)


@pytest.mark.timing
@pytest.mark.session("begins when a process is registered for notifications")
async def test_a_flow_that_ends_wakes_its_waiters(client: Client, db: Connection) -> None:
    took = []
    for _ in range(5):
        handle = await started(client)
        waiting = [asyncio.create_task(handle.result(timeout=10)) for _ in range(2)]
        await eventually(lambda: is_waited_for(db))
        await handle.cancel("enough")
        cancelled_at = time.monotonic()
        for each in waiting:
            with pytest.raises(FlowCancelled, match="enough"):
                await each
        took.append(time.monotonic() - cancelled_at)

    assert sorted(took)[2] < 0.1


async def test_a_client_without_notifications_polls_for_the_end_of_a_flow(ff_dsn: str) -> None:
    async with await Client.connect(ff_dsn, listen=False) as client:
        handle = await started(client)
        waiting = asyncio.create_task(handle.result(timeout=10))
        with pytest.raises(ResultTimeout):
            await handle.result(timeout=0.05)
        await handle.cancel("enough")

        with pytest.raises(FlowCancelled, match="enough"):
            await waiting


async def test_a_flow_that_has_ended_is_answered_even_if_there_is_no_time_to_wait(
    client: Client,
) -> None:
    handle = await started(client)
    with pytest.raises(ResultTimeout):
        await handle.result(timeout=0)
    await handle.cancel("enough")

    with pytest.raises(FlowCancelled, match="enough"):
        await handle.result(timeout=0)


async def test_a_cancel_says_that_members_have_yet_to_end(client: Client, another: Another) -> None:
    handle = await started(client)
    member = (await handle.members())[0].execution_id
    holder = await another()
    async with holder.transaction():
        await lock_executions(holder, [member])
        with pytest.raises(FlowCancelPending, match="is cancelled"):
            await client.engine.cancel_flow(handle.flow_id, reason="enough", wait=0.1)


@pytest.mark.direct("builds a flow by its engine")
async def test_nobody_waits_for_a_flow_that_does_not_exist_or_that_is_empty_and_cancelled(
    client: Client,
) -> None:
    with pytest.raises(NotFound, match="flow"):
        await client.flow(uuid4()).result(timeout=10)

    await on_database(client.engine).create_flow(flow_id := uuid4(), flow_kind="empty")
    await client.flow(flow_id).cancel("enough")
    with pytest.raises(FlowCancelled, match="enough"):
        await client.flow(flow_id).result(timeout=10)
