"""The graph of 1,000 members: laid out, served, and painted by a browser."""

import gzip
import importlib.util
import shutil
import time
from statistics import median
from typing import Final
from uuid import UUID

import httpx

from bench.dashboard.result import Line
from bench.dashboard.served import Served
from bench.flow_graphs import Hand, random_edges, submit
from flowfabric import Engine
from flowfabric.dashboard.graph import lay_out

MEMBERS: Final = 1_000
EDGES: Final = 2_000
KINDS: Final = 20
LANE: Final = "graph"
# The page itself notes when the frame after the one that shows the graph begins: asked from
# outside whether the graph is there, it lays out for every question, and answers frames later.
NOTE_PAINTED: Final = """new MutationObserver((_, observer) => {
    if (!document.querySelector("svg.graph[data-fitted]")) return;
    observer.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => {
      window.painted = performance.now();
    }));
}).observe(document, { subtree: true, attributes: true, attributeFilter: ["data-fitted"] });"""
PAINTED: Final = "() => window.painted"
# Watched before anything changes: a change that came earlier would be waited for without end.
WATCH_COLOURS: Final = """() => { window.recoloured = new Promise((done) => {
    const graph = document.querySelector("svg.graph .nodes");
    let began = 0;
    new MutationObserver(() => {
      if (!began) { began = performance.now(); }
      requestAnimationFrame(() => done(performance.now() - began));
    }).observe(graph, { subtree: true, attributes: true, attributeFilter: ["data-state"] });
}); }"""
RECOLOURED: Final = "() => window.recoloured"


async def graph(server: Served, engine: Engine) -> list[Line]:
    """Layout, page, and what a browser makes of it, where there is one."""
    lines = [_layout(1_000, 60), _layout(3_000, 250)]
    edges = random_edges(1, MEMBERS, EDGES)
    names = sorted({name for edge in edges for name in edge})
    kinds = {name: f"kind-{number % KINDS}" for number, name in enumerate(names)}
    flow_id, _ = await submit(engine, "large", edges, lane=LANE, kinds=kinds)
    url = f"{server.base}/flows/{flow_id}?group=none&all=1"
    async with httpx.AsyncClient(timeout=30) as client:
        cpu = [server.cpu()]
        first, page = await _get(client, url)
        cpu.append(server.cpu())
        cached, _ = await _get(client, url)
        cpu.append(server.cpu())
    size = len(gzip.compress(page)) / 1024
    lines += [
        Line(group="graph", what="page, first", value=first, unit="ms", bar=300),
        Line(group="graph", what="page, cached", value=cached, unit="ms", bar=30),
        Line(group="graph", what="page, first, CPU", value=1000 * (cpu[1] - cpu[0]), unit="ms"),
        Line(group="graph", what="page, cached, CPU", value=1000 * (cpu[2] - cpu[1]), unit="ms"),
        Line(group="graph", what="page, compressed", value=size, unit="KB", bar=120),
    ]
    if importlib.util.find_spec("playwright") and shutil.which("chromium"):
        lines += await _painted(url, engine, flow_id)
    return lines


def _layout(members: int, bar: float) -> Line:
    names = random_edges(1, members, 2 * members)
    number = {name: place for place, name in enumerate({n: None for e in names for n in e})}
    edges = [(number[one], number[other]) for one, other in names]
    took: list[float] = []
    for _ in range(3):
        began = time.process_time()
        lay_out(len(number), edges)
        took.append(1000 * (time.process_time() - began))
    what = f"layout of {members:,}, CPU"
    return Line(group="graph", what=what, value=median(took), unit="ms", bar=bar)


async def _get(client: httpx.AsyncClient, url: str) -> tuple[float, bytes]:
    began = time.perf_counter()
    answer = await client.get(url)
    answer.raise_for_status()
    return 1000 * (time.perf_counter() - began), answer.content


async def _painted(url: str, engine: Engine, flow_id: UUID) -> list[Line]:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"))
        page = await (await browser.new_context()).new_page()
        await page.add_init_script(NOTE_PAINTED)
        await page.goto(url, wait_until="commit")
        painted = await (await page.wait_for_function(PAINTED, polling=100)).json_value()
        await page.locator("header[data-live=on]").wait_for()
        await page.wait_for_timeout(2_000)
        await page.evaluate(WATCH_COLOURS)
        await Hand(engine, LANE).claim()
        recoloured = await page.evaluate(RECOLOURED)
        await browser.close()
    return [
        Line(group="graph", what="painted after navigation", value=painted, unit="ms", bar=1_000),
        Line(group="graph", what="recoloured", value=recoloured, unit="ms", bar=200),
    ]
