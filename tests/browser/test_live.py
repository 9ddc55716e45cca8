"""Pages that are left open: what changes is shown, and nothing that a person does is lost."""

from __future__ import annotations

from playwright.async_api import Browser, Page, expect

from flowfabric.states import LaneState
from tests import given
from tests.browser.conftest import Heard, Served, context_of


async def test_changes_appear_and_typing_folds_and_selection_survive(
    page: Page, served: Served
) -> None:
    await page.goto(served.url + served.busy.path("suspended"))
    await expect(page.locator("header.head")).to_have_attribute("data-live", "on")
    await page.locator("#j-1 summary").click()
    await expect(page.locator("#j-1")).to_have_attribute("open", "")
    await served.engine.set_execution_tag(served.busy.suspended, "shop.tier", "gold")
    await served.engine.resume_execution(served.busy.suspended, actor="ann", reason="go on")
    await expect(page.locator(".story")).to_contain_text("resumed")
    await expect(page.locator(".story")).to_contain_text("go on")
    await expect(page.locator("#j-1")).to_have_attribute("open", "")

    await page.goto(served.url + "/executions")
    await page.get_by_role("textbox", name="Kind").fill("half a w")
    rows = page.locator("tbody tr")
    count = await rows.count()
    await rows.nth(1).locator("input").check()
    await served.engine.create_execution([given.new(execution_kind="arrives")])
    pill = page.get_by_role("button", name="1 new, show")
    await expect(pill).to_be_visible()  # rows are selected: the list does not move
    assert await rows.count() == count
    await expect(rows.nth(1).locator("input")).to_be_checked()
    await pill.click()
    await expect(rows.first).to_contain_text("arrives")
    await expect(page.get_by_role("textbox", name="Kind")).to_have_value("half a w")


async def test_frames_come_as_they_are_appended_and_secrets_do_not(
    page: Page, served: Served
) -> None:
    await page.goto(served.url + served.busy.path("active"))
    frames = page.locator("#frames .frame")
    await expect(frames).to_have_count(3)
    await expect(page.locator("#frames")).to_contain_text("•••")
    await expect(page.locator("#frames")).not_to_contain_text("s3cret")
    assert await page.locator("#frames img").count() == 0


async def test_a_paused_page_asks_for_nothing(page: Page, served: Served) -> None:
    await page.goto(served.url + "/lanes")
    head = page.locator("header.head")
    await expect(head).to_have_attribute("data-live", "on")
    await page.keyboard.press("p")
    await expect(head).to_have_attribute("data-live", "paused")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await served.engine.set_lane_state("orders", LaneState.PAUSED, actor="ann", reason="x")
    await page.wait_for_timeout(2500)  # longer than a beat
    assert asked == []
    await page.keyboard.press("p")
    await expect(page.locator("tr", has_text="orders")).to_contain_text("paused")


async def test_the_seventh_tab_of_a_browser_loads(
    chromium: Browser, served: Served, heard: Heard
) -> None:
    context = await context_of(chromium, heard)
    pages = [await context.new_page() for _ in range(7)]
    for each in pages:
        await each.goto(served.url + "/lanes")
        await expect(each.locator("header.head")).not_to_have_attribute("data-live", "off")
    states = [await each.locator("header.head").get_attribute("data-live") or "" for each in pages]
    await context.close()

    assert sorted(states) == ["on"] * 3 + ["polling"] * 4
    assert heard.complaints == []
