"""What was stopped for review: all of a kind go on, or one of them runs again from the start."""

from __future__ import annotations

from flowfabric import Engine
from flowfabric.db.rows import Connection
from flowfabric.engine.events.operator_events import OperatorEvent
from flowfabric.engine.executions.search import Search
from flowfabric.server.app import Application
from flowfabric.states import DIVERGENCE, PublicState, Role, SuspensionReason
from tests.dashboard.conftest import Person, browser, send
from tests.engine.executions.suspended import suspended

RESUME = "/approvals/resume?kind=ship&amp;of=default"


async def stopped(db: Connection, kind: str = "ship") -> str:
    found = await suspended(
        db,
        kind=kind,
        reason=SuspensionReason.WAITING_FOR_OPERATOR_REVIEW,
        detail=f"{DIVERGENCE}other calls",
        keeps_waitpoints=True,
    )
    return f"{found.partition_key}.{found.uuid}"


async def test_all_of_a_kind_go_on_and_another_kind_stays(
    served: Application, ff_engine: Engine, db: Connection, person: Person
) -> None:
    for kind in ("ship", "ship", "pack"):
        await stopped(db, kind)
    ann = await person(Role.OPERATOR, label="ann")
    page = (await ann.get("/approvals")).text
    assert RESUME in page
    assert "Resume all" in page
    assert "Resume 2 executions of ship?" in (await ann.get(RESUME.replace("&amp;", "&"))).text

    await send(ann, RESUME.replace("&amp;", "&"), {"reason": "deployed"})

    [left] = await ff_engine.list_reviews()
    assert (left.execution_kind, left.waiting) == ("pack", 1)
    events = (await ff_engine.list_events("operator", limit=2)).events
    reasons = [each.reason for each in events if isinstance(each, OperatorEvent)]
    assert reasons == ["deployed"] * 2
    assert (await ann.get(RESUME.replace("&amp;", "&"))).status_code == 404
    reader = await person(Role.READER)
    assert "/approvals/resume" not in (await reader.get("/approvals")).text


async def test_one_that_was_stopped_runs_again(
    served: Application, ff_engine: Engine, db: Connection
) -> None:
    path = await stopped(db)
    async with browser(served) as admin:
        assert f"/executions/{path}/replay" in (await admin.get("/approvals")).text
        assert f"/executions/{path}/replay" in (await admin.get(f"/executions/{path}")).text

        await send(admin, f"/executions/{path}/replay", {"reason": "from the start"})

    assert await ff_engine.list_reviews() == []
    [found] = (await ff_engine.search_executions(Search())).executions
    assert found.public_state is PublicState.WAITING
