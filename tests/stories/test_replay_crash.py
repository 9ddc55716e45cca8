"""The process of an operator dies inside a replay, and leaves all of it or nothing."""

from __future__ import annotations

import signal

import pytest

from flowfabric import App, Client, Ctx, Fail
from flowfabric.db.rows import Connection
from tests import given
from tests.engine.controls import actions
from tests.stories import replaying

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class Ship:
    """Two steps; the second fails for good until somebody mends what is wrong."""

    def __init__(self, dsn: str) -> None:
        self.dsn, self.app = dsn, App()
        self.ran: list[str] = []
        self.mended = False

        @self.app.task("shipped")
        async def shipped(ctx: Ctx) -> str:
            await ctx.step("pack", self.pack)
            return await ctx.step("ship", self.ship)

        self.call = shipped.call

    async def pack(self) -> None:
        self.ran.append("pack")

    async def ship(self) -> str:
        self.ran.append("ship")
        if not self.mended:
            raise Fail("no ship", retryable=False)
        return "shipped"

    async def run(self) -> None:
        await self.app.worker(dsn=self.dsn).run_until_idle()


async def test_an_operator_who_dies_in_a_replay_leaves_all_of_it_or_nothing(
    ff_dsn: str, client: Client, db: Connection
) -> None:
    ship = Ship(ff_dsn)
    handle = await client.submit(ship.call())
    await ship.run()
    assert await handle.state() == "failed"
    before = await given.everything(db)
    left = dict[str, tuple[int, bool]]()

    async with replaying.operators(ff_dsn, handle.execution_id) as dies:
        for place in replaying.PLACES:
            left[place] = (await dies(place), await given.everything(db) == before)

    killed = -signal.SIGKILL
    assert left == {
        "before the journal is cut back": (killed, True),
        "after that, before its new mark": (killed, True),
        "after that, before the execution is claimable": (killed, True),
        "before the commit": (killed, True),
        "after the commit": (killed, False),
    }
    assert [row["name"] for row in await db.fetch("SELECT name FROM ff.journal")] == ["mark"]
    ship.mended = True
    await ship.run()
    assert await handle.result(timeout=10) == "shipped"
    assert ship.ran == ["pack", "ship", "pack", "ship"]
    [replayed] = await actions(db, handle.execution_id)
    assert (replayed.event_type, replayed.actor) == ("replayed", "ann")
    assert replayed.details["dropped_keys"] == ["pack#0", "ship#0"]
