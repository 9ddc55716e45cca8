"""Every page in a real browser: two widths, two themes, no complaint, nothing hard to use."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page

from flowfabric.states import LaneState
from tests.browser.conftest import AXE, Heard, Served, context_of
from tests.dashboard.busy import HOSTILE
from tests.dashboard.test_access import paths_of

RUN = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
    .map(each => each.id + ": " + each.nodes.slice(0, 3).map(n => n.target.join(" ")).join(", "))"""
WIDER = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
LOOKS = ((1440, "light"), (360, "dark"))
PARTS = 3


async def looked_at(page: Page) -> dict[str, object]:
    """What is wrong with the page in each width and theme; dialogs, which are all alike, in one."""
    found: dict[str, object] = {}
    await page.evaluate(AXE)
    alike = await page.locator("main .alone-card").count()
    for width, theme in LOOKS[1:] if alike else LOOKS:
        await page.set_viewport_size({"width": width, "height": 800})
        await page.emulate_media(color_scheme=theme)  # pyright: ignore[reportArgumentType]
        if wrong := await page.evaluate(RUN):
            found[f"{width} {theme}"] = wrong
        if (wider := await page.evaluate(WIDER)) > 0:
            found[f"{width} {theme} wider by"] = wider
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
async def test_every_page_in_two_widths_and_two_themes(
    part: int, chromium: Browser, served: Served, heard: Heard
) -> None:
    busy, engine = served.busy, served.engine
    await engine.set_lane_state("idle lane", LaneState.PAUSED, actor="ann", reason=HOSTILE)
    paths = set(paths_of(busy).values()) | {f"{busy.path('active')}/replay"}
    paths = {each for each in paths if "/payload/" not in each}
    paths |= {busy.path(name) for name in ("active", "completed", "failed", "suspended", "member")}
    paths |= {"/executions?state=failed&kind=nothing", "/search?q=nothing at all", "/nowhere"}
    paths |= {"/settings?tab=info", "/settings?tab=doctor&run=1", "/login"}
    context = await context_of(chromium, heard)
    page = await context.new_page()
    found: dict[str, object] = {}
    chosen = sorted(paths)[part::PARTS]
    for path in chosen:
        await page.goto(served.url + path)
        if wrong := await looked_at(page):
            found[path] = wrong
    await context.close()
    complaints = [each for each in heard.complaints if "404" not in each]

    assert found == {}
    assert complaints == []
    assert heard.hosts == {served.url.split("/")[2]}
    assert len(chosen) > 10
