"""`ff lanes`: what waits where."""

from __future__ import annotations

from rich.markup import escape

from flowfabric.cli.connection import engine_on, resolve, run
from flowfabric.cli.output import AsJson, DatabaseUrl, ago, console, print_json, table
from flowfabric.engine.lanes.list_lanes import LaneCount


def lanes(database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show every lane with what waits, is delayed and runs on it."""
    found = run(_count(resolve(database_url)))
    if as_json:
        print_json(found)
        return
    shown = table("lane", "waiting", "delayed", "active", "oldest waiting")
    for lane in found:
        shown.add_row(
            escape(lane.lane_id),
            str(lane.waiting),
            str(lane.delayed),
            str(lane.active),
            ago(lane.oldest_waiting_since),
        )
    console.print(shown if found else "No lanes yet: they appear with the first execution.")


async def _count(dsn: str) -> list[LaneCount]:
    async with engine_on(dsn) as engine:
        return await engine.count_by_lane()
