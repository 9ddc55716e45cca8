"""Every page in a real browser: two widths, two themes, no complaint, nothing hard to use."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page

from flowfabric.states import LaneState
from tests.browser.conftest import AXE, Heard, Served, context_of
from tests.dashboard.busy import HOSTILE
from tests.dashboard.test_access import paths_of

RUN = """async rules => (await axe.run(document, rules)).violations
    .map(each => each.id + ": " + each.nodes.slice(0, 3).map(n => n.target.join(" ")).join(", "))"""
ALL = {"resultTypes": ["violations"]}
CONTRAST = {**ALL, "runOnly": {"type": "rule", "values": ["color-contrast"]}}
"""The only rule that depends on the theme."""
WIDER = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
LOOKS = (
    (1440, "light", ALL),
    (1440, "dark", CONTRAST),
    (360, "dark", ALL),
    (360, "light", CONTRAST),
)
HALVES = 2


async def looked_at(page: Page) -> dict[str, object]:
    """What is wrong with the page in each width and theme; dialogs, which are all alike, in one."""
    found: dict[str, object] = {}
    await page.evaluate(AXE)
    alike = await page.locator("main .alone-card").count()
    for width, theme, rules in LOOKS[2:3] if alike else LOOKS:
        await page.set_viewport_size({"width": width, "height": 800})
        await page.emulate_media(color_scheme=theme)  # pyright: ignore[reportArgumentType]
        if wrong := await page.evaluate(RUN, rules):
            found[f"{width} {theme}"] = wrong
        if (wider := await page.evaluate(WIDER)) > 0:
            found[f"{width} {theme} wider by"] = wider
    return found


@pytest.mark.parametrize("half", range(HALVES))
async def test_every_page_in_two_widths_and_two_themes(
    half: int, chromium: Browser, served: Served, heard: Heard
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
    chosen = sorted(paths)[half::HALVES]
    for path in chosen:
        await page.goto(served.url + path)
        if wrong := await looked_at(page):
            found[path] = wrong
    await context.close()
    complaints = [each for each in heard.complaints if "404" not in each]

    assert found == {}
    assert complaints == []
    assert heard.hosts == {served.url.split("/")[2]}
    assert len(chosen) > 15
