"""Events: filtered by what, who, of what and when, and taken away as a file."""

from __future__ import annotations

import csv
import io
import json

from flowfabric import Engine
from flowfabric.server.app import Application
from flowfabric.states import Role
from tests.dashboard.busy import Busy
from tests.dashboard.conftest import Person, browser


async def test_events_are_filtered_and_exported(
    served: Application, busy: Busy, ff_engine: Engine, person: Person
) -> None:
    await ff_engine.cancel_execution(busy.delayed, reason="=SUM(1)", actor="ann")
    await ff_engine.cancel_execution(busy.foreign, reason="of another", actor="ann")
    x = f"{busy.delayed.partition_key}.{busy.delayed.uuid}"
    async with browser(served) as admin:
        for query, there, absent in (
            ("", "cancelled", "schedule paused"),
            ("type=cancelled", "=SUM(1)", "schedule triggered"),
            ("type=schedule_triggered", "schedule triggered", "=SUM(1)"),
            ("actor=ann&type=cancelled", "=SUM(1)", "<b>schedule created</b>"),
            ("actor=nobody", "leave a condition out", "=SUM(1)"),
            (f"family=all&execution={x}", "=SUM(1)", "<b>success</b>"),
            (f"family=completion&flow={busy.flow}", "success", str(busy.completed.uuid)),
            ("family=signal&since=1h", "Nothing of this kind", "=SUM(1)"),
        ):
            page = (await admin.get(f"/events?{query}")).text
            rows = page.partition('data-region="events"')[2].partition("</section>")[0]
            assert there in rows, query
            assert absent not in rows, query
        for query in ("execution=x", "flow=x", "since=soon", "cursor=~x.q"):
            assert (await admin.get(f"/events?{query}")).status_code == 422, query

        table = await admin.get("/events?format=csv&type=cancelled")
        head, *rows = list(csv.reader(io.StringIO(table.text)))
        assert head[:3] == ["at", "family", "what"]
        assert {row[6] for row in rows} == {"'=SUM(1)", "of another"}
        listed = json.loads((await admin.get("/events?format=json&family=all")).text)
        assert len(listed) > 10
    local = await person(Role.OPERATOR, namespaces=["default"])
    for query in ("format=csv", "format=json", "family=all"):
        assert "of another" not in (await local.get(f"/events?{query}")).text
