"""Flows in a real browser: the graph recolours itself, can be moved, walked and searched."""

from __future__ import annotations

import asyncio
import os

import pytest
from playwright.async_api import Page, Route, expect

from bench.flow_graphs import Hand, busy_flow, random_edges, start_order, submit
from flowfabric import Engine
from tests.browser.conftest import MAKE_PICTURES, PICTURES

PAINTED = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(
    () => done(performance.now()))))"""
VIEW = "() => document.querySelector('svg.graph').getAttribute('viewBox')"


@pytest.fixture
def page(bare_page: Page) -> Page:
    return bare_page


async def test_a_running_flow_recolours_without_a_reload(
    ff_engine: Engine, address: str, page: Page
) -> None:
    flow_id, ids = await start_order(ff_engine, images=189)  # 200 members
    begun = [each for each in ids if each.startswith("quote-")]
    resized = [each for each in ids if each.startswith("resize-")]
    await page.goto(f"{address}/flows/{flow_id}")
    await page.evaluate("() => { window.same = true; }")
    charge, stack = page.locator(".node", has_text="charge"), page.locator(".node.pile title")
    await expect(charge).to_have_attribute("data-state", "waiting_children")
    await expect(page.locator("header.head")).to_have_attribute("data-live", "on")
    hand = Hand(ff_engine, "orders")

    await hand.hold([ids["checkout"]])
    await hand.complete()
    await hand.hold([ids[each] for each in (*begun, "charge", "reserve_stock", "audit")])

    await expect(charge).to_have_attribute("data-state", "active")
    await expect(charge.locator(".word")).to_have_text("active")
    await hand.complete()
    await expect(charge).to_have_attribute("data-state", "completed")
    await hand.hold([ids[each] for each in (*resized, "pick_carrier", "report")])
    await expect(stack).to_have_text("resize_image \u00d7 189: 189 active")
    await hand.complete()
    await expect(stack).to_have_text("resize_image \u00d7 189: 189 completed")
    await expect(page.locator(".arrows .open")).to_have_count(1)
    await expect(page.locator("#head .says")).to_contain_text("1 waits for a worker")
    assert await page.evaluate("() => window.same")


async def test_a_graph_that_was_asked_for_before_a_change_does_not_undo_its_colours(
    ff_engine: Engine, address: str, page: Page
) -> None:
    flow_id, ids = await start_order(ff_engine, images=10)
    asked, painted = asyncio.Event(), asyncio.Event()

    async def answer_late(route: Route) -> None:
        if asked.is_set():
            return  # only the first one is answered
        answer = await route.fetch()
        asked.set()
        await painted.wait()
        await route.fulfill(response=answer)

    await page.route("**/flows/**_region=graph**", answer_late)
    await page.goto(f"{address}/flows/{flow_id}")
    await expect(page.locator("header.head")).to_have_attribute("data-live", "on")
    checkout = page.locator(".node", has_text="checkout")
    hand = Hand(ff_engine, "orders")

    await hand.hold([ids["checkout"]])
    async with asyncio.timeout(30):
        await asked.wait()
    await hand.complete()
    await expect(checkout).to_have_attribute("data-state", "completed")
    async with page.expect_response("**_region=graph**"):
        painted.set()

    await page.wait_for_timeout(300)
    await expect(checkout).to_have_attribute("data-state", "completed", timeout=1_000)
    await page.unroute_all(behavior="ignoreErrors")


async def test_the_graph_is_walked_searched_moved_and_chosen_from(
    ff_engine: Engine, address: str, page: Page
) -> None:
    flow_id = await busy_flow(ff_engine, images=40)
    await page.goto(f"{address}/flows/{flow_id}")
    first = page.locator(".node[tabindex='0']")
    await expect(first).to_have_count(1)
    if os.environ.get(MAKE_PICTURES):
        PICTURES.mkdir(exist_ok=True)
        await page.screenshot(path=PICTURES / "dashboard-flow.png")

    # Along the edges by arrows; larger and smaller by keys.
    await first.focus()
    await page.keyboard.press("ArrowRight")
    await expect(page.locator(".node:focus title")).not_to_contain_text("checkout")
    await page.keyboard.press("ArrowLeft")
    await expect(page.locator(".node:focus title")).to_contain_text("checkout")
    before = await page.evaluate(VIEW)
    await page.keyboard.press("+")
    assert await page.evaluate(VIEW) != before
    await page.keyboard.press("0")

    # Found by name, dimming the others.
    await page.get_by_label("Find a member").fill("quote")
    await expect(page.locator(".seek output")).to_have_text("1 of 3")
    await expect(page.locator(".node.dim")).not_to_have_count(0)
    await page.keyboard.press("Enter")
    await expect(page.locator(".seek output")).to_have_text("2 of 3")
    await page.keyboard.press("Escape")
    await expect(page.locator(".node.dim")).to_have_count(0)

    # The first click shows a member beside the graph; the drawing stays where it was.
    before = await page.evaluate(VIEW)
    audit = page.locator(".node", has_text="audit")
    await audit.click()
    panel = page.locator("#panel")
    await expect(panel).to_contain_text("the ledger refused row 8812")
    await expect(panel.get_by_role("link", name="Replay")).to_be_visible()
    await expect(audit).to_have_attribute("aria-current", "true")
    await page.get_by_role("button", name="Close").click()
    await expect(panel).to_be_hidden()

    # Dragging moves, and is no click.
    box = await page.locator(".viewport").bounding_box()
    assert box is not None
    await page.keyboard.press("+")
    for step in ("down", "move", "up"):
        if step == "move":
            await page.mouse.move(box["x"] + 300, box["y"] + 200, steps=4)
        elif step == "down":
            await page.mouse.move(box["x"] + 200, box["y"] + 150)
            await page.mouse.down()
        else:
            await page.mouse.up()
    await expect(panel).to_be_hidden()

    # A stack opens in place, and what was clicked stays where it was.
    stack = page.locator(".node.pile")
    at = await stack.bounding_box()
    key = await stack.get_attribute("data-id")
    await stack.click()
    await expect(page.locator(".node", has_text="resize-")).to_have_count(40)
    opened = await page.locator(f".node[data-id='{key}']").bounding_box()
    assert at is not None
    assert opened is not None
    assert abs(opened["x"] - at["x"]) < 12
    assert abs(opened["y"] - at["y"]) < 12
    assert "open=" in page.url


async def test_a_flow_is_cancelled_in_a_dialog(ff_engine: Engine, address: str, page: Page) -> None:
    flow_id, _ = await submit(ff_engine, "short", [("a", "b")], lane="l")
    await page.goto(f"{address}/flows/{flow_id}")
    await page.get_by_role("link", name="Cancel flow").click()
    await page.get_by_label("Reason").fill("not wanted any more")
    await page.get_by_role("dialog").get_by_role("button", name="Cancel flow").click()

    await expect(page.locator("#toasts")).to_contain_text("The flow is cancelled with 2 members.")
    await expect(page.locator("#head")).to_contain_text("not wanted any more")
    await expect(page.locator(".node[data-state='cancelled']")).to_have_count(2)


@pytest.mark.timing
async def test_a_graph_of_1000_members_is_painted_and_recoloured_quickly(
    ff_engine: Engine, address: str, page: Page
) -> None:
    flow_id, _ = await submit(ff_engine, "large", random_edges(1, 1_000, 2_000), lane="l")
    url = f"{address}/flows/{flow_id}?group=none&all=1"

    await page.goto(url, wait_until="commit")
    await page.locator(".viewport.moves").wait_for()
    painted = await page.evaluate(PAINTED)

    assert await page.locator(".node").count() >= 990
    drawn = await page.locator(".minimap path").evaluate_all(
        "all => all.map(p => p.getAttribute('d'))"
    )
    assert "".join(drawn).count("M") >= 990
    assert painted < 8_000
    await expect(page.locator("header.head")).to_have_attribute("data-live", "on")
    await Hand(ff_engine, "l").claim()
    await expect(page.locator(".node[data-state='active']")).not_to_have_count(0)
