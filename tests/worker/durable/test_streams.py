"""Handlers emit frames and keep their state; readers follow them through retries to the end."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flowfabric import Client, Ctx, Fail, LeaseLost, Retry, ValidationError
from flowfabric.client.open_engine import on_database
from flowfabric.engine.streams.frame import Frame
from flowfabric.states import FrameMode, FrameVisibility
from flowfabric.sync import Client as BlockingClient
from flowfabric.testing import Clock
from flowfabric.worker import frame_writer
from tests.worker.durable.lab import Lab, Statements
from tests.worker.proxy import Proxy


class Progress(msgspec.Struct):
    done: int
    note: str | None = None


async def read(frames: Any) -> list[Frame]:
    async with asyncio.timeout(20):
        return [each async for each in frames]


def texts(frames: list[Frame]) -> list[str]:
    return [each.text for each in frames]


async def test_what_a_handler_emits_is_read_in_order_and_its_state_is_kept(lab: Lab) -> None:
    @lab.app.task("speak")
    async def speak(ctx: Ctx) -> None:
        await ctx.emit("token", "hello", correlation_id="c-1")
        await ctx.emit("blob", b"\xff")
        await ctx.live("cursor", {"x": 1}, ttl=timedelta(seconds=5))
        await ctx.patch({"done": 1, "note": ctx.NULL, "gone": [1]})
        await ctx.set_state({"done": 2, "note": None})

    handle = await lab.submitted(speak.call())
    frames = await read(handle.stream())

    assert [each.frame_type for each in frames] == ["token", "blob", "cursor", "state", "state"]
    assert [each.payload for each in frames[:2]] == [b"hello", b"\xff"]
    assert frames[0].correlation_id == "c-1"
    assert frames[2].value() == {"x": 1}
    assert frames[2].mode is FrameMode.BEST_EFFORT
    assert await handle.state(type=Progress) == Progress(done=2)
    assert (await handle.state()).value == "completed"
    hidden = await read(handle.stream(visibility=FrameVisibility.EXCLUDE_BEST_EFFORT))
    assert len(hidden) == 4
    assert await read(handle.stream(after=frames[2].cursor)) == frames[3:]
    with pytest.raises(ValidationError, match="does not decode"):
        await handle.state(type=int)
    with pytest.raises(ValidationError, match="'token' does not decode"):
        frames[0].value()


async def test_frames_travel_together_and_a_handler_without_any_costs_nothing(
    lab: Lab, statements: Statements
) -> None:
    @lab.app.task("burst")
    async def burst(ctx: Ctx) -> None:
        for number in range(300):
            await ctx.emit("n", str(number))

    @lab.app.task("silent")
    async def silent(ctx: Ctx) -> None:
        pass

    await lab.submitted(silent.call())
    assert statements.of("streams") == {}
    handle = await lab.submitted(burst.call())

    assert statements.of("streams") == {"streams.append_frames": 1}
    assert texts(await read(handle.stream())) == [str(number) for number in range(300)]


async def test_frames_do_not_wait_for_their_time_once_there_are_64(
    lab: Lab, ff_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_writer, "FLUSH_EVERY", 50.0)
    first, last = asyncio.Event(), asyncio.Event()

    @lab.app.task("chatty")
    async def chatty(ctx: Ctx) -> int:
        await ctx.emit("n", "0")  # it comes alone and is sent at once
        await first.wait()
        for number in range(1, 64):
            await ctx.emit("n", str(number))
        await asyncio.sleep(0.1)
        stored = await lab.db.fetchval("SELECT count(*) FROM ff.stream_frame")
        await ctx.emit("n", "64")
        await last.wait()
        return stored

    async with lab.app.worker(dsn=ff_dsn):
        handle = await lab.client.submit(chatty.call())
        frames = handle.stream()
        async with asyncio.timeout(20):
            read = [(await anext(frames)).text]
            first.set()
            read += [(await anext(frames)).text for _ in range(64)]
            last.set()
            stored = await handle.result()

    assert read == [str(number) for number in range(65)]
    assert stored == 1, "63 frames wait for one more"


async def test_a_reader_gets_each_frame_while_the_handler_runs(lab: Lab, ff_dsn: str) -> None:
    said, heard = asyncio.Event(), asyncio.Event()

    @lab.app.task("talk")
    async def talk(ctx: Ctx) -> None:
        await ctx.emit("one")
        await said.wait()
        await ctx.emit("two")
        await heard.wait()

    async with lab.app.worker(dsn=ff_dsn):
        handle = await lab.client.submit(talk.call())
        frames = handle.stream()
        async with asyncio.timeout(20):
            assert (await anext(frames)).frame_type == "one"
            said.set()
            assert (await anext(frames)).frame_type == "two"
            heard.set()
            assert await anext(frames, None) is None


@pytest.mark.direct("reads a stream by its engine")
async def test_a_new_attempt_has_its_own_stream_and_readers_follow_into_it(
    lab: Lab, clock: Clock
) -> None:
    @lab.app.task("stumble", retry=Retry(max_retries=1, initial=0.001))
    async def stumble(ctx: Ctx) -> None:
        await ctx.emit("try", str(ctx.attempt_index))
        await ctx.step("recorded", int)
        await ctx.emit("after", str(ctx.attempt_index))
        if ctx.attempt_index == 0:
            raise Fail("stumbled")

    handle = await lab.submitted(stumble.call())
    reading = asyncio.create_task(read(handle.stream()))
    await clock.advance(timedelta(seconds=5))
    await lab.run()
    frames = await reading

    said = ["0", "0", "1", "1"]  # recorded by attempt 0, so attempt 1 emits again
    assert texts(frames) == said
    assert [each.attempt_index for each in frames] == [0, 0, 1, 1]
    assert texts(await read(handle.stream(attempt=0))) == ["0", "0"]
    assert await read(handle.stream(after=frames[1].cursor)) == frames[2:]
    assert await read(handle.stream(after=frames[3].cursor)) == []
    page = await on_database(lab.engine).read_stream(handle.execution_id, 0)
    assert page.closed_reason == "attempt_failure"


async def test_what_was_said_before_a_recorded_entry_is_not_said_again(
    lab: Lab, clock: Clock
) -> None:
    @lab.app.task("sleepy")
    async def sleepy(ctx: Ctx) -> None:
        await ctx.emit("first")
        await ctx.live("cursor", ttl=60)
        await ctx.patch({"runs": 1})
        await ctx.set_state({"runs": 2})
        await ctx.step("a", lab.did.append, "a")
        await ctx.emit("second")
        await ctx.sleep(timedelta(hours=1))
        await ctx.emit("third")

    handle = await lab.submitted(sleepy.call())
    said = ["first", "cursor", "state", "state", "second"]
    assert [each.frame_type for each in await read(handle.stream(follow=False))] == said
    await clock.advance(timedelta(hours=2))
    await lab.engine.wake_execution(handle.execution_id, actor="test")
    await lab.run()

    frames = await read(handle.stream())
    assert [each.frame_type for each in frames] == [*said, "third"]
    assert {each.attempt_index for each in frames} == {0}


@pytest.mark.parametrize("ending", ["step", "failure", "timeout", "transaction", "children"])
@pytest.mark.direct("transactions of handlers need the database itself")
async def test_frames_are_committed_before_an_entry_or_an_ending(ending: str, lab: Lab) -> None:
    seen: list[int] = []

    async def count() -> None:
        seen.append(await lab.db.fetchval("SELECT count(*) FROM ff.stream_frame"))

    @lab.app.task("child")
    async def child(ctx: Ctx) -> None:
        await count()

    @lab.app.task("ends", timeout=0.3 if ending == "timeout" else None, retry=Retry(max_retries=0))
    async def ends(ctx: Ctx) -> None:
        await ctx.emit("last words")
        match ending:
            case "step":
                await ctx.step("s", int)
                await count()
            case "failure":
                raise Fail("no", retryable=False)
            case "timeout":
                await asyncio.sleep(20)
            case "transaction":
                await ctx.transaction()
            case _:
                await ctx.gather([child.call()])

    handle = await lab.submitted(ends.call())

    assert [each.frame_type for each in await read(handle.stream())] == ["last words"]
    assert seen == ([1] if ending in ("step", "children") else [])


async def test_a_handler_that_lost_its_lease_cannot_emit(lab: Lab) -> None:
    raised: list[type] = []

    @lab.app.task("robbed")
    async def robbed(ctx: Ctx) -> None:
        await ctx.emit("mine")
        await ctx.step("flushes", int)
        await lab.engine.cancel_execution(ctx.execution_id, reason="test", actor="test")
        try:
            while True:
                await ctx.emit("late")
                await asyncio.sleep(0.01)
        except LeaseLost as error:
            raised.append(type(error))
            raise

    handle = await lab.submitted(robbed.call(), on_lease_lost="ignore")

    assert raised == [LeaseLost]
    assert [each.frame_type for each in await read(handle.stream())] == ["mine"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda ctx: ctx.emit("", "x" * 65537), "65537"),
        (lambda ctx: ctx.emit("a\nb"), "frame_type"),
        (lambda ctx: ctx.emit("t", object()), "value"),
        (lambda ctx: ctx.emit("t", "\ud800"), "value"),
        (lambda ctx: ctx.emit("t", {"a": float("nan")}), "nan"),
        (lambda ctx: ctx.live("t", ttl=0), "ttl"),
        (lambda ctx: ctx.patch([1]), "object at its root"),
        (lambda ctx: ctx.patch("{}"), "must be a mapping"),
        (lambda ctx: ctx.set_state(None), "object at its root"),
    ],
)
async def test_a_bad_frame_is_refused_where_it_is_made(call: Any, said: str, lab: Lab) -> None:
    refusals: list[str] = []

    @lab.app.task("bad")
    async def bad(ctx: Ctx) -> None:
        try:
            await call(ctx)
        except ValidationError as error:
            refusals.append(str(error))

    await lab.submitted(bad.call())

    assert len(refusals) == 1
    assert said in refusals[0]


async def test_a_plain_handler_and_a_blocking_reader_have_the_same_calls(lab: Lab) -> None:
    @lab.app.task("plain")
    def plain(ctx: Ctx) -> None:
        ctx.sync.emit("a", "1")
        ctx.sync.live("b", "2", ttl=1)
        ctx.sync.patch({"done": 3})
        ctx.sync.set_state({"done": 4})

    handle = await lab.submitted(plain.call())

    def watch() -> tuple[list[str], Progress | None, str]:
        with BlockingClient.connect(lab.dsn) as client:
            blocking = client.handle(handle.execution_id)
            types = [each.frame_type for each in blocking.stream()]
            return types, blocking.state(type=Progress), blocking.state().value

    assert await asyncio.to_thread(watch) == (
        ["a", "b", "state", "state"],
        Progress(done=4),
        "completed",
    )


async def test_a_lost_answer_neither_loses_nor_repeats_a_frame(lab: Lab, ff_dsn: str) -> None:
    @lab.app.task("numbers")
    async def numbers(ctx: Ctx) -> None:
        for number in range(200):
            await ctx.emit("n", str(number))
            if number % 20 == 0:
                await asyncio.sleep(0.03)

    handle = await lab.client.submit(numbers.call())

    async def some_are_written() -> bool:
        return await lab.db.fetchval("SELECT count(*) FROM ff.stream_frame") > 60

    async with Proxy.to(ff_dsn) as proxy:
        proxy.lose_answer(some_are_written)
        await lab.app.worker(dsn=proxy.dsn, lease_ttl=5).run_until_idle()

    assert texts(await read(handle.stream())) == [str(number) for number in range(200)]


async def test_a_low_level_task_appends_frames_itself(client: Client, lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        raise AssertionError("run by hand")

    handle = await client.submit(job.call())
    async for task in lab.app.worker(dsn=lab.dsn).tasks():
        async with task:
            first = await task.append_frame("log", b"hello")
            second = await task.append_frame("log", b"{}", mode=FrameMode.SUMMARY)
            await task.complete(b"null")
        break

    assert (first.frame_count, second.frame_count, second.summary_version) == (1, 2, 1)
    assert texts(await read(handle.stream())) == ["hello", "{}"]


async def test_a_task_in_a_child_process_emits_through_its_worker(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "emitting.py").write_text(
        "from flowfabric import App, Ctx\napp = App()\n"
        "@app.task('child', executor='process')\n"
        "def child(ctx: Ctx) -> None:\n"
        "    ctx.sync.emit('from', 'child')\n    ctx.sync.patch({'done': 1})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    import emitting  # pyright: ignore[reportMissingImports]  written above

    handle = await lab.client.submit(emitting.child.call())
    await emitting.app.worker(dsn=lab.dsn).run_until_idle()

    assert texts(await read(handle.stream())) == ["child", '{"done":1}']
