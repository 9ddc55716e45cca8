"""The pictures of the guide and of the README: `FF_PICTURES=1 pytest tests/browser -k picture`."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Any

import pytest
from playwright.async_api import Page, expect

from flowfabric import App, Client, Ctx, Engine, Fail, Retry
from flowfabric.db.rows import Connection
from flowfabric.engine.activity.roll_up_activity import roll_up_activity
from flowfabric.states import LaneState, PublicState
from tests.browser.conftest import MAKE_PICTURES, PICTURES
from tests.worker.facts import eventually

ORDERS = 140


def shop() -> App:
    """A shop on a good day, with some bad cards."""
    app = App()

    @app.task("charge_card", lane="payments", retry=Retry(max_retries=2, initial=0.05))
    async def charge_card(ctx: Ctx, order: int) -> dict[str, int]:
        if order % 17 == 0:
            raise ConnectionError(f"bank gateway {order} did not answer")
        if order % 23 == 0:
            raise Fail(f"card of order o-{order} was declined", category="declined")
        return {"order": order, "charged": order * 3}

    async def reserve(order_id: str) -> dict[str, str]:
        return {"shelf": f"shelf-{order_id}"}

    @app.task("fulfil_order", lane="orders")
    async def fulfil_order(ctx: Ctx, order_id: str) -> str:
        await ctx.step("reserve", reserve, order_id)
        await ctx.step("pack", reserve, order_id)
        await ctx.wait_for_signal("approved", type=dict, timeout=timedelta(days=7))
        return "shipped"

    @app.task("transcode", lane="media")
    async def transcode(ctx: Ctx, path: str) -> str:
        await ctx.progress(40, "scene 12 of 30")
        await asyncio.sleep(600)
        return path

    return app


@pytest.mark.skipif(not os.environ.get(MAKE_PICTURES), reason="pictures are made on request")
async def test_pictures_of_the_overview_the_list_and_an_execution(
    ff_engine: Engine, ff_dsn: str, db: Connection, address: str, bare_page: Page
) -> None:
    app, page = shop(), bare_page
    tasks: dict[str, Any] = dict(app.tasks)
    async with app.worker(dsn=ff_dsn, concurrency=16, drain=0.1):
        async with await Client.connect(ff_dsn) as client:
            for order in range(1, ORDERS):
                await client.submit(
                    tasks["charge_card"].call(order),
                    tags={"shop.tenant": ("acme", "globex", "initech")[order % 3]},
                )
            waits = [
                await client.submit(
                    tasks["fulfil_order"].call(f"o-{number}"), tags={"shop.tier": "gold"}
                )
                for number in range(3)
            ]
            for name in ("intro", "film", "credits"):
                await client.submit(tasks["transcode"].call(f"{name}.mov"))
            await client.submit(tasks["fulfil_order"].call("later"), delay=3600)
        await ff_engine.register_lanes(["reports"], registered_by="ann")
        await ff_engine.set_lane_state("reports", LaneState.PAUSED, actor="ann", reason="month end")

        async def settled() -> bool:
            async with db.transaction():
                await roll_up_activity(db, 1000)
            counted = await ff_engine.count_ended(window=3600)
            state = await ff_engine.read_execution_state(waits[0].execution_id)
            return sum(counted.values()) == ORDERS - 1 and state is PublicState.SUSPENDED

        await eventually(settled, within=60)
        one = waits[0].execution_id
        await page.set_viewport_size({"width": 1200, "height": 800})
        PICTURES.mkdir(exist_ok=True)
        for name, path in (
            ("overview", "/"),
            ("executions", "/executions?limit=25"),
            ("execution", f"/executions/{one.partition_key}.{one.uuid}"),
        ):
            await page.goto(address + path)
            await expect(page.locator("header.head")).to_have_attribute("data-live", "on")
            await page.screenshot(path=PICTURES / f"dashboard-{name}.png")
