"""What a browser loads, and what a page needs that is left open; nothing without Chromium."""

import asyncio
import importlib.util
import shutil
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from bench.dashboard.result import Line
from bench.dashboard.served import Served
from bench.flow_graphs import Hand
from flowfabric import Engine, ExecutionId
from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.engine.streams.append_frame import Append
from flowfabric.engine.streams.frame import NewFrame

if TYPE_CHECKING:
    from playwright.async_api import Page, Response

LANE: Final = "left-open"
AT_ONCE: Final = 200
ROWS: Final = 2_000
LONG_TASKS: Final = """() => { window.long = [0];
    new PerformanceObserver((list) => {
      for (const each of list.getEntries()) window.long.push(each.duration);
    }).observe({ type: "longtask" }); }"""
HEAP: Final = "() => performance.memory.usedJSHeapSize / 1048576"


async def browser(server: Served, engine: Engine, *, seconds: float, frames: int) -> list[Line]:
    """Weight of the first visit and of the next page; heap and tasks of pages left open."""
    if not (importlib.util.find_spec("playwright") and shutil.which("chromium")):
        return []
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--enable-precise-memory-info"]
        )
        page = await (await chromium.new_context()).new_page()
        lines = await _weight(page, server)
        lines += await _list_left_open(page, server, engine, seconds)
        lines += await _frames(page, server, engine, frames)
        await chromium.close()
    return lines


async def _weight(page: "Page", server: Served) -> list[Line]:
    answers: list[Response] = []

    def hear(answer: "Response") -> None:
        answers.append(answer)

    page.on("response", hear)
    await page.goto(f"{server.base}/executions", wait_until="load")
    first = await _sizes(answers)
    answers.clear()
    await page.goto(f"{server.base}/lanes", wait_until="load")
    following = await _sizes(answers)
    page.remove_listener("response", hear)
    own = urlsplit(server.base).netloc
    other = sum(urlsplit(each).netloc != own for each in {**first, **following})

    def total(sizes: dict[str, float], end: str = "") -> float:
        return sum(size for url, size in sizes.items() if url.endswith(end))

    group = "weight"
    return [
        Line(group=group, what="first visit of the list", value=total(first), unit="KB", bar=120),
        Line(group=group, what="script", value=total(first, ".js"), unit="KB", bar=40),
        Line(group=group, what="style", value=total(first, ".css"), unit="KB", bar=8),
        Line(group=group, what="next page", value=total(following), unit="KB", bar=25),
        Line(group=group, what="requests to another host", value=other, unit="", bar=0),
    ]


async def _sizes(answers: "list[Response]") -> dict[str, float]:
    """Kilobytes of each answer as they were sent; what the browser had kept counts nothing."""
    found: dict[str, float] = {}
    for answer in list(answers):
        if "/live" in answer.url:
            continue
        await answer.finished()
        sizes = await answer.request.sizes()
        found[answer.url] = sizes["responseBodySize"] / 1024
    return found


async def _list_left_open(
    page: "Page", server: Served, engine: Engine, seconds: float
) -> list[Line]:
    """The list, with two changes a second."""
    await page.goto(f"{server.base}/executions")
    await page.locator("header[data-live=on]").wait_for()
    await asyncio.sleep(2)
    before = await _heap(page)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        await engine.create_execution([_new("changes")])
        await asyncio.sleep(0.5)
    grown = max(0.0, await _heap(page) - before)
    what = f"heap after {seconds:g} s of 2 changes a second"
    return [Line(group="left open", what=what, value=grown, unit="MB", bar=10)]


async def _frames(page: "Page", server: Served, engine: Engine, frames: int) -> list[Line]:
    """A stream with many frames."""
    new = _new("talks")
    await engine.create_execution([new])
    hand = Hand(engine, f"{LANE}-talks")
    await hand.claim(1)
    [task] = hand.held.values()
    await _say(engine, task.lease, 0, 1)
    one = new.execution_id
    await page.goto(f"{server.base}/executions/{one.partition_key}.{one.uuid}")
    await page.locator("header[data-live=on]").wait_for()
    await page.evaluate(LONG_TASKS)
    for first in range(1, frames, AT_ONCE):
        await _say(engine, task.lease, first, AT_ONCE)
    last = page.locator(f"#frames .frame:has-text('frame {first + AT_ONCE - 1}.')")
    await last.wait_for(timeout=120_000)
    rows = await page.locator("#frames .frame").count()
    longest = await page.evaluate("() => Math.max(...window.long)")
    group = "left open"
    return [
        Line(group=group, what=f"rows of {frames:,} frames", value=rows, unit="", bar=ROWS),
        Line(group=group, what="longest task meanwhile", value=longest, unit="ms", bar=200),
    ]


async def _say(engine: Engine, lease: Any, first: int, count: int) -> None:
    frames = [
        NewFrame(frame_type="line", payload=f"frame {number}.".encode())
        for number in range(first, first + count)
    ]
    await engine.append_frames([Append(lease=lease, frames=frames)])


async def _heap(page: "Page") -> float:
    session = await page.context.new_cdp_session(page)
    await session.send("HeapProfiler.collectGarbage")
    await session.detach()
    return await page.evaluate(HEAP)


def _new(kind: str) -> NewExecution:
    lane = f"{LANE}-{kind}"
    return NewExecution(execution_id=ExecutionId.mint(), execution_kind=kind, lane_id=lane)
