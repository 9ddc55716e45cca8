"""The durable calls of a handler that runs in a thread."""

import threading
import time
from typing import Any

import pytest

from flowfabric import Ctx, Retry, StepFailed, WrongThread
from flowfabric.errors import NestedDurableCall
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from tests.worker.durable.lab import Lab

pytestmark = pytest.mark.timeout(60)


@pytest.mark.direct("transactions of handlers need the database itself")
async def test_every_call_has_a_blocking_twin(lab: Lab, clock: Clock) -> None:
    await lab.seed_key()
    await lab.db.execute("CREATE TABLE public.orders (id int)")

    @lab.app.task("child")
    async def child(ctx: Ctx, n: int) -> int:
        return n

    @lab.app.step("declared")
    def declared(n: int) -> int:
        return n

    async def save(conn: Any, n: int) -> int:
        await conn.execute("INSERT INTO public.orders VALUES ($1)", n)
        return n

    async def fetch(n: int) -> int:
        return n

    def where() -> bool:
        return threading.current_thread().name.startswith("flowfabric handler")

    @lab.app.task("job", version=4)
    def job(ctx: Ctx, peer: str) -> list[Any]:
        sync = ctx.sync
        chance = [str(sync.uuid()), sync.random(), sync.now().isoformat()]
        steps = [
            sync.step("where", where),
            sync.step("fetch", fetch, 1),
            sync.step("limited", abs, -2, timeout=5),
            sync.step(declared, 3),
            sync.step_tx("save", save, 4),
        ]
        entry = sync.begin_step("open")
        if not entry.done:
            entry.complete(5)
        sync.compensate(child.call(0))
        sync.disarm()
        waitpoint = sync.waitpoint("w", expires=6000)
        sync.signal(ExecutionId.parse(peer), "hello", "from a thread")
        kid = sync.spawn(child.call(6), budget=ctx.budgets)
        first = sync.select(kid=kid, late=ctx.timer(600))
        sync.sleep("nap", 60)
        got = sync.wait_for_signal("go", type=str, timeout=600)
        kids = [*sync.gather([child.call(7)]), sync.race(child.call(8))]
        kids += sync.quorum(1, [child.call(9)])
        return [
            chance,
            steps,
            entry.value,
            first.value,
            got,
            kids,
            sync.patched("p"),
            ctx.version,
            str(waitpoint.waitpoint_id),
        ]

    @lab.app.task("peer")
    async def peer(ctx: Ctx) -> str:
        return await ctx.wait_for_signal("hello", type=str)

    other = await lab.submitted(peer.call())
    handle = await lab.submitted(job.call(str(other.execution_id)))
    await clock.advance(60)
    await lab.run()
    await lab.signal(handle, "go", "went")
    await lab.run()

    found = await handle.result(5)
    assert found[1:8] == [[True, 1, 2, 3, 4], 5, 6, "went", [7, 8, 9], True, 4]
    assert await other.result(5) == "from a thread"
    assert await lab.db.fetchval("SELECT count(*) FROM public.orders") == 1


async def test_a_recorded_step_of_a_plain_handler_does_not_run_again(
    lab: Lab, clock: Clock
) -> None:
    def charge() -> str:
        lab.did.append("charge")
        if len(lab.did) < 3:
            raise OSError("busy")
        return "receipt"

    @lab.app.task("job")
    def job(ctx: Ctx) -> str:
        receipt = ctx.sync.step("charge", charge, retry=Retry(max_retries=5, initial=0))
        with pytest.raises(StepFailed):
            ctx.sync.step("fails", int, "x")
        ctx.sync.sleep(60)
        return receipt

    handle = await lab.submitted(job.call())
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "receipt"
    assert lab.did == ["charge"] * 3


async def test_durable_calls_inside_a_step_of_a_plain_handler_are_refused(lab: Lab) -> None:
    @lab.app.task("job")
    def job(ctx: Ctx) -> str:
        def work() -> str:
            with pytest.raises(NestedDurableCall):
                ctx.sync.sleep(1)
            return ctx.effect_key

        return ctx.sync.step("work", work)

    handle = await lab.submitted(job.call())

    assert len(await handle.result(5)) == 36


async def test_the_calls_are_for_the_thread_of_the_handler_only(lab: Lab) -> None:
    def told(call: Any) -> str:
        try:
            call()
        except WrongThread:
            return "told"
        return "not told"

    @lab.app.task("plain")
    def plain(ctx: Ctx) -> str:
        answers: list[str] = []
        thread = threading.Thread(
            target=lambda: answers.append(told(lambda: ctx.sync.step("work", int)))
        )
        thread.start()
        thread.join()
        return answers[0]

    @lab.app.task("async")
    async def in_loop(ctx: Ctx) -> str:
        return told(lambda: ctx.sync.step("work", int))

    for task in (plain, in_loop):
        handle = await lab.submitted(task.call())
        assert await handle.result(5) == "told"


async def test_a_step_with_a_timeout_needs_no_second_place_among_the_threads(lab: Lab) -> None:
    @lab.app.task("job")
    def job(ctx: Ctx) -> int:
        return ctx.sync.step("work", abs, -3, timeout=5)

    handle = await lab.submitted(job.call(), sync_workers=1)

    assert await handle.result(5) == 3


async def test_a_plain_handler_may_take_its_time_to_clean_up_at_a_park(
    lab: Lab, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    @lab.app.task("job")
    def job(ctx: Ctx) -> str:
        try:
            ctx.sync.sleep(60)
        finally:
            time.sleep(0.8)
            lab.did.append("cleaned up")
        return "done"

    handle = await lab.submitted(job.call())
    assert lab.did == ["cleaned up"]
    assert not any("stuck" in text for text in caplog.messages)
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "done"
