"""Pictures of the guide: `python -m tests.browser.pictures`, while `ff dev` runs beside it."""

from __future__ import annotations

import asyncio
import sys

from playwright.async_api import async_playwright

from tests.browser.conftest import CHROMIUM, PICTURES

PAGES = {
    "overview": "/",
    "executions": "/executions",
    "execution": "/executions?state=suspended",
}


async def make(url: str) -> None:
    """Open each page in 1200 px and store what it looks like."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM)
        page = await browser.new_page(viewport={"width": 1200, "height": 750})
        for name, path in PAGES.items():
            await page.goto(url + path)
            if name == "execution":
                await page.locator("tbody a.name").first.click()
            await page.wait_for_selector('[data-live="on"]')
            await page.screenshot(path=PICTURES / f"dashboard-{name}.png")
        await browser.close()


if __name__ == "__main__":
    asyncio.run(make(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:9090/ui"))
