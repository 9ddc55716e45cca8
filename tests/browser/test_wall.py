"""Every page in a real browser: two widths, two themes, no complaint, nothing hard to use.

`make test` looks at each page in both widths and both themes, and by every role, but asks all the
rules of one of these looks, another one for each page; with `--whole`, of all.
"""

from __future__ import annotations

from typing import Final

import msgspec
import pytest
from playwright.async_api import Browser, Page, expect

from flowfabric.dashboard.routes import ROUTES
from flowfabric.dashboard.table import Act
from flowfabric.states import LaneState, Role
from tests.browser.conftest import AXE, Heard, Served, context_of
from tests.dashboard.busy import HOSTILE
from tests.dashboard.test_access import paths_of

RUN = """async (rules) => (await axe.run(document, {
        resultTypes: ["violations"], ...(rules.length && {runOnly: rules}) })).violations
    .map(each => each.id + ": " + each.nodes.slice(0, 3).map(n => n.target.join(" ")).join(", "))"""
WIDER = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
LOOKS = ((1440, "light"), (360, "dark"), (360, "light"), (1440, "dark"))
CHANGES = "main a[data-act]:not([href$='/logout'])"
"""What changes something beside the session of the person."""
FOR_ALL = {"/queries/save", "/logout", "/prefs", "/sessions/{session_id}/close"}
"""Acts of everybody who is logged in."""
COLOURS = ["color-contrast"]
"""What differs between themes of the same width."""
PARTS = 4


def looks_at(number: int, *, whole: bool) -> tuple[tuple[int, str], ...]:
    """The looks of a page: all, or two that differ in width and theme, one of them first."""
    if whole:
        return LOOKS
    first, second = LOOKS[:2] if number % 4 < 2 else LOOKS[2:]
    return (first, second) if number % 2 == 0 else (second, first)


async def looked_at(page: Page, number: int = 0, *, whole: bool = True) -> dict[str, object]:
    """What is wrong with the page in each width and theme; dialogs, which are all alike, in one."""
    found: dict[str, object] = {}
    await page.evaluate(AXE)
    alike = await page.locator("main .alone-card").count()
    looks = looks_at(number, whole=whole)
    for place, (width, theme) in enumerate(LOOKS[1:2] if alike else looks):
        await page.set_viewport_size({"width": width, "height": 800})
        await page.emulate_media(color_scheme=theme)  # pyright: ignore[reportArgumentType]
        if wrong := await page.evaluate(RUN, [] if place < len(looks) / 2 else COLOURS):
            found[f"{width} {theme}"] = wrong
        if (wider := await page.evaluate(WIDER)) > 0:
            found[f"{width} {theme} wider by"] = wider
    return found


@pytest.mark.parametrize("part", range(PARTS))
async def test_every_page_in_two_widths_and_two_themes(
    part: int, chromium: Browser, served: Served, heard: Heard, whole: bool
) -> None:
    busy, engine = served.busy, served.engine
    await engine.set_lane_state("idle lane", LaneState.PAUSED, actor="ann", reason=HOSTILE)
    paths = set(paths_of(busy).values()) | {f"{busy.path('active')}/replay"}
    paths = {each for each in paths if "/payload/" not in each}
    paths |= {busy.path(name) for name in ("active", "completed", "failed", "suspended", "member")}
    paths |= {"/executions?state=failed&kind=nothing", "/search?q=nothing at all", "/nowhere"}
    paths |= {"/settings?tab=info", "/settings?tab=doctor&run=1", "/login"}
    answer = f"{busy.path('approval').rpartition('/')[2]}/{busy.waitpoint}"
    paths |= {f"/approvals/{answer}/answer", f"/approvals/{answer}/link", f"/answer/{answer}"}
    paths |= {f"{busy.path('failed')}?attempt=1&with=0", busy.path("approval")}
    paths |= {"/events?family=all&since=1h", "/approvals?state=answered"}
    context = await context_of(chromium, heard)
    page = await context.new_page()
    found: dict[str, object] = {}
    chosen = sorted(paths)[part::PARTS]
    for number, path in enumerate(chosen):
        await page.goto(served.url + path)
        if wrong := await looked_at(page, number, whole=whole):
            found[path] = wrong
    await context.close()
    complaints = [each for each in heard.complaints if "404" not in each]

    assert found == {}
    assert complaints == []
    assert heard.hosts == {served.url.split("/")[2]}
    assert len(chosen) > 10


class Look(msgspec.Struct, frozen=True):
    """Somebody who opens every address, and the window they have."""

    role: Role
    namespace: str
    width: int
    theme: str


PEOPLE: Final = {
    "a reader and a stranger": (
        Look(Role.READER, "*", 360, "light"),
        Look(Role.OPERATOR, "elsewhere", 1440, "light"),
    ),
    "an operator and an admin": (
        Look(Role.OPERATOR, "*", 1440, "dark"),
        Look(Role.ADMIN, "*", 360, "dark"),
    ),
}


async def logged_in(browser: Browser, served: Served, heard: Heard, look: Look) -> Page:
    """A page of somebody with this role, who has logged in by hand."""
    label = f"{look.role}-{look.namespace}"
    made = await served.engine.create_token(label, role=look.role, namespaces=[look.namespace])
    served.application.services.authenticator._open = None  # its ten seconds are over
    size = {"width": look.width, "height": 800}
    context = await context_of(browser, heard, viewport=size, color_scheme=look.theme)
    page = await context.new_page()
    await page.goto(served.url + "/login")
    await page.get_by_label("API token").fill(made.token)
    await page.get_by_role("button", name="Log in").click()
    await expect(page.locator("header.head")).to_be_visible()
    return page


@pytest.mark.parametrize("people", PEOPLE)
async def test_every_address_is_as_easy_to_use_for_people_of_every_role(
    people: str, chromium: Browser, served: Served, heard: Heard, whole: bool
) -> None:
    everybody = [look for looks in PEOPLE.values() for look in looks]
    rows = {each.path: each for each in ROUTES}
    paths = paths_of(served.busy, "active")
    paths = {row: path for row, path in sorted(paths.items()) if "/payload/" not in path}
    found: dict[str, object] = {}
    opened: dict[Role, int] = {}
    for look in PEOPLE[people]:
        page, refused = await logged_in(chromium, served, heard, look), set[int]()
        looked = 0
        for number, (row, path) in enumerate(paths.items()):
            if isinstance(rows[row], Act):  # its dialog is the same for all who may do it
                status = (await page.request.get(served.url + path)).status
                assert status < 500, path
                assert look.role is not Role.READER or status == 403 or row in FOR_ALL, path
                continue
            answer = await page.goto(served.url + path)
            assert answer is not None
            opened[look.role] = opened.get(look.role, 0) + answer.ok
            if not answer.ok and answer.status in refused:
                continue  # what is refused looks alike
            refused.add(answer.status)
            assert look.role is not Role.READER or not await page.locator(CHANGES).count(), path
            if whole or not answer.ok or everybody[number % len(everybody)] == look:
                await page.evaluate(AXE)
                looked += 1
                if wrong := await page.evaluate(RUN, []):
                    found[f"{look.role} {path}"] = wrong
            if (wider := await page.evaluate(WIDER)) > 0:
                found[f"{look.role} {path} wider by"] = wider
        await page.context.close()
        assert looked > 3

    assert found == {}
    assert [each for each in heard.complaints if "404" not in each and "403" not in each] == []
    assert min(opened.values()) > 10
    assert len(paths) > 40


async def test_nobody_is_led_to_the_login_from_every_address(
    chromium: Browser, served: Served, heard: Heard
) -> None:
    await served.engine.create_token("root", role=Role.ADMIN)
    served.application.services.authenticator._open = None  # its ten seconds are over
    context = await context_of(chromium, heard, viewport={"width": 360, "height": 800})
    page = await context.new_page()
    for path in paths_of(served.busy).values():
        answer = await page.request.get(served.url + path, max_redirects=0)
        assert (answer.status, "/login?next=" in answer.headers["location"]) == (303, True), path
    await page.goto(served.url + "/lanes")
    assert await looked_at(page) == {}
    await context.close()
    assert heard.complaints == []
