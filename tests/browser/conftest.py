"""Chromium, driven over a server in this process; every test fails on what its console says."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    async_playwright,
    expect,
)

from flowfabric import Engine
from flowfabric.dashboard import mounting
from flowfabric.server.app import Application
from flowfabric.server.serve import address_of, bind, running
from flowfabric.server.settings import Settings
from tests.dashboard.busy import Busy, make_busy

NO_BROWSER = "FF_NO_BROWSER"
expect.set_options(timeout=30_000)  # a fact is waited for, however busy the machine is
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
MAKE_PICTURES = "FF_PICTURES"
"""Set, the pictures of the documentation are made anew."""
AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
_WHY = (
    f"{NO_BROWSER} is set"
    if os.environ.get(NO_BROWSER)
    else "Chromium is missing: apt-get install -y --no-install-recommends chromium"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without Chromium these tests are left out, and say so; they have time on a busy machine."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(300))
            if CHROMIUM is None or os.environ.get(NO_BROWSER):
                item.add_marker(pytest.mark.skip(reason=_WHY))


class Heard(msgspec.Struct):
    """What pages complained about, and where they sent requests."""

    complaints: list[str] = []
    hosts: set[str] = set()


class Served(msgspec.Struct):
    """A server with its dashboard, and the busy database behind it."""

    url: str
    busy: Busy
    application: Application
    engine: Engine


@pytest.fixture
async def chromium() -> AsyncGenerator[Browser]:
    """A browser of this test: what a test leaves running is cancelled after it."""
    assert CHROMIUM is not None
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        await browser.close()


@pytest.fixture
async def served(ff_engine: Engine, ff_dsn: str) -> AsyncGenerator[Served]:
    busy, worker = await make_busy(ff_engine, ff_dsn)
    settings = Settings(listen="127.0.0.1:0", api_tokens=(), callbacks=True)
    try:
        with bind(settings) as bound:
            async with running(ff_engine, settings, bound, mounting=mounting) as application:
                url = f"{address_of(bound)}/ui"
                yield Served(url=url, busy=busy, application=application, engine=ff_engine)
    finally:
        await worker.__aexit__(None, None, None)


@pytest.fixture
async def address(ff_engine: Engine) -> AsyncGenerator[str]:
    """The dashboard of this test's database, which has no worker."""
    settings = Settings(listen="127.0.0.1:0", api_tokens=())
    with bind(settings) as bound:
        async with running(ff_engine, settings, bound, mounting=mounting):
            yield f"{address_of(bound)}/ui"


@pytest.fixture
def heard() -> Heard:
    return Heard(complaints=[], hosts=set())


async def context_of(browser: Browser, heard: Heard, **options: Any) -> BrowserContext:
    """A context whose complaints are heard."""
    context = await browser.new_context(reduced_motion="reduce", **options)

    def listen(page: Page) -> None:
        def complain(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                heard.complaints.append(f"{page.url}: {message.text}")

        page.on("pageerror", lambda error: heard.complaints.append(f"error: {error}"))
        page.on("console", complain)
        page.on("request", lambda request: heard.hosts.add(request.url.split("/")[2]))

    context.on("page", listen)
    return context


async def listening(page: Page, title: str) -> None:
    """The page with this title is there, and its scripts, which run after its text, hear keys."""
    await expect(page.locator("h1")).to_have_text(title)
    await page.wait_for_load_state("domcontentloaded")


@pytest.fixture
async def page(chromium: Browser, heard: Heard, served: Served) -> AsyncGenerator[Page]:
    """A page of 1440 px; at the end nothing was complained about, and no other host was asked."""
    context = await context_of(chromium, heard, viewport={"width": 1440, "height": 900})
    page = await context.new_page()
    yield page
    await context.close()
    assert heard.complaints == []
    assert heard.hosts <= {served.url.split("/")[2]}


@pytest.fixture
async def bare_page(chromium: Browser, heard: Heard) -> AsyncGenerator[Page]:
    """A page of 1440 px beside no busy database; what the browser complains about fails it."""
    context = await context_of(chromium, heard, viewport={"width": 1440, "height": 900})
    yield await context.new_page()
    await context.close()
    assert heard.complaints == []
