"""Pages that are left open: what changes is shown, and nothing that a person does is lost."""

from __future__ import annotations

import msgspec
import pytest
from playwright.async_api import Browser, Page, expect

from flowfabric import Engine
from flowfabric.dashboard import mounting
from flowfabric.dashboard.pulse import Pulse
from flowfabric.engine.streams.append_frame import Append
from flowfabric.engine.streams.frame import NewFrame
from flowfabric.server.serve import address_of, bind, running
from flowfabric.server.settings import Settings
from flowfabric.states import LaneState
from tests import given
from tests.browser.conftest import Heard, Served, context_of

AT = """() => [document.activeElement.closest("tr")?.id, scrollY]"""


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

    await page.set_viewport_size({"width": 1440, "height": 400})
    await rows.last.locator("a.name").focus()
    await page.evaluate("() => scrollTo(0, document.body.scrollHeight)")
    focused, place = await page.evaluate(AT)
    assert focused
    assert place > 0
    await served.engine.create_execution([given.new(execution_kind="comes_too")])
    await expect(rows.first).to_contain_text("comes_too")
    still, now_at = await page.evaluate(AT)
    assert still == focused
    assert now_at >= place


async def test_frames_come_as_they_are_appended_and_secrets_do_not(
    page: Page, served: Served
) -> None:
    await page.goto(served.url + served.busy.path("active"))
    frames = page.locator("#frames .frame")
    await expect(frames).to_have_count(3)
    await expect(page.locator("#frames")).to_contain_text("•••")
    await expect(page.locator("#frames")).not_to_contain_text("s3cret")
    assert await page.locator("#frames img").count() == 0


async def test_a_long_stream_keeps_2000_rows(page: Page, served: Served) -> None:
    engine = served.engine
    new = given.new(execution_kind="talk", lane_id="talks")
    await engine.create_execution([new])
    worker = msgspec.structs.replace(given.WORKER, lanes=("talks",), kinds=("talk",))
    [task] = await engine.claim(worker, ttl=600)

    async def say(numbers: range) -> None:
        frames = [NewFrame(frame_type="line", payload=f"{n}".encode()) for n in numbers]
        await engine.append_frames([Append(lease=task.lease, frames=frames)])

    await say(range(1))
    one = new.execution_id
    await page.goto(f"{served.url}/executions/{one.partition_key}.{one.uuid}")
    await expect(page.locator("header.head")).to_have_attribute("data-live", "on")
    for first in range(1, 2_601, 200):
        await say(range(first, first + 200))
    frames = page.locator("#frames .frame")
    await expect(frames.last).to_contain_text("2600", timeout=30_000)
    assert await frames.count() == 2_000
    box = page.locator("#frame-box")
    at_end = "(box) => box.scrollHeight - box.scrollTop - box.clientHeight"
    await box.scroll_into_view_if_needed()
    await expect(frames.last).to_be_in_viewport()
    assert await box.evaluate(at_end) < 2
    await box.hover()
    await page.mouse.wheel(0, -300)
    await expect(page.locator("#follow")).not_to_be_checked()
    await say(range(2_601, 2_602))
    await expect(frames.last).to_contain_text("2601")
    assert await box.evaluate(at_end) > 100  # what a person reads does not move away


async def test_an_open_page_survives_a_restart_of_the_server(
    ff_engine: Engine, chromium: Browser, heard: Heard
) -> None:
    await ff_engine.register_lanes(["orders"], registered_by="test")
    settings = Settings(listen="127.0.0.1:0", api_tokens=())
    context = await context_of(chromium, heard)
    page = await context.new_page()
    head = page.locator("header.head")
    with bind(settings) as bound:
        port = bound.getsockname()[1]
        async with running(ff_engine, settings, bound, mounting=mounting):
            await page.goto(f"{address_of(bound)}/ui/lanes")
            await page.evaluate("() => { window.same = true; }")
            await expect(head).to_have_attribute("data-live", "on")
    await expect(head).to_have_attribute("data-live", "lost", timeout=20_000)
    await ff_engine.set_lane_state("orders", LaneState.PAUSED, actor="ann", reason="x")
    again = Settings(listen=f"127.0.0.1:{port}", api_tokens=())
    with bind(again) as bound:
        async with running(ff_engine, again, bound, mounting=mounting):
            await expect(head).to_have_attribute("data-live", "on", timeout=30_000)
            await expect(page.locator("tr", has_text="orders")).to_contain_text("paused")
            assert await page.evaluate("() => window.same")
            await context.close()
    assert [each for each in heard.complaints if "net::ERR" not in each] == []


async def test_a_paused_page_asks_for_nothing(page: Page, served: Served) -> None:
    await page.goto(served.url + "/lanes")
    head = page.locator("header.head")
    await expect(head).to_have_attribute("data-live", "on")
    await page.keyboard.press("p")
    await expect(head).to_have_attribute("data-live", "paused")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    other = await page.context.browser.new_page()  # pyright: ignore[reportOptionalMemberAccess]
    await other.goto(served.url + "/lanes")
    await expect(other.locator("header.head")).to_have_attribute("data-live", "on")
    await served.engine.set_lane_state("orders", LaneState.PAUSED, actor="ann", reason="x")
    await expect(other.locator("tr", has_text="orders")).to_contain_text("paused")
    await other.close()
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


async def test_a_connection_that_says_nothing_is_said_to_be_lost_and_opened_again(
    page: Page, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = page.locator("header.head")
    async with page.expect_response(lambda answer: "_region=lanes" in answer.url):
        await page.goto(served.url + "/lanes")  # it is told of its topics
    await expect(head).to_have_attribute("data-live", "on")
    with monkeypatch.context() as silent:
        silent.setattr(Pulse, "_touch", lambda *_: None)
        await expect(head).to_have_attribute("data-live", "lost")
        await expect(page.locator("#live")).to_contain_text("Connection lost, as of ")
    await expect(head).to_have_attribute("data-live", "on")
