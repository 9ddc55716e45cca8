"""Lanes over time, tables and settings for admins, and filters that readers keep."""

from __future__ import annotations

from flowfabric import Engine
from flowfabric.db.rows import Connection
from flowfabric.engine.activity.roll_up_activity import roll_up_activity
from flowfabric.server.app import Application
from flowfabric.states import Role
from tests.dashboard.busy import Busy
from tests.dashboard.conftest import Person, browser, form_token, send
from tests.worker.facts import eventually


async def test_a_lane_is_drawn_over_time_with_its_kinds_and_what_a_retention_would_delete(
    served: Application, busy: Busy, db: Connection
) -> None:
    async with browser(served) as admin:

        async def drawn() -> bool:
            async with db.transaction():
                await roll_up_activity(db, 1000)
            return "Waiting and running time" in (await admin.get("/lanes/default")).text

        await eventually(drawn)
        page = (await admin.get("/lanes/default?window=24h")).text
        assert "The last 24h" in page
        assert 'class="chart lines"' in page
        assert "ended a minute" in page
        for path in ("/", "/lanes"):
            listed = (await admin.get(path)).text
            assert 'aria-label="Executions that ended on default' in listed, path
        assert "Waiting and running time" in (await admin.get("/")).text
        assert "Nothing has ended in this time" in (await admin.get("/lanes/idle lane")).text
        kinds = page.partition("Able workers")[2]
        assert "charge_card" in kinds
        for path, field in (("retention", "retention"), ("trim", "older")):
            token = await form_token(admin, f"/lanes/default/{path}")
            for given, said in (("1d", "0 executions ended more than 1 d ago"), ("x", "must look")):
                data = {"_csrf": token, "_preview": "yes", field: given}
                assert said in (await admin.post(f"/lanes/default/{path}", data=data)).text


async def test_tables_are_shown_to_admins_and_readers_keep_filters_of_their_own(
    ff_engine: Engine, person: Person
) -> None:
    admin, reader = await person(Role.ADMIN), await person(Role.READER, label="rita")
    info = (await admin.get("/settings?tab=info")).text
    assert "<code>exec_core</code>" in info
    assert "Answers by link" in info
    assert "exec_core" not in (await reader.get("/settings?tab=info")).text

    save = "/queries/save?state=failed"
    assert "For everybody" not in (await reader.get(save)).text
    await send(reader, save, {"name": "mine", "shared": "yes"})
    [saved] = await ff_engine.list_queries(owner="rita", namespace="default")
    assert (saved.name, saved.shared) == ("mine", False)
    assert "mine" in (await reader.get("/executions")).text
    await send(reader, f"/queries/{saved.query_id}/forget", {})
    assert await ff_engine.list_queries(owner="rita", namespace="default") == []
