"""One act for everything that matches: previewed, begun, followed and stopped."""

from __future__ import annotations

import re

from flowfabric import Engine
from flowfabric.db.rows import Connection
from flowfabric.engine.bulk.run_bulk_actions import run_bulk_actions
from flowfabric.server.app import Application
from flowfabric.states import PublicState, Role
from tests import given
from tests.dashboard.conftest import Person, form_token


async def test_everything_that_matches_is_previewed_changed_and_followed(
    served: Application, ff_engine: Engine, db: Connection, person: Person
) -> None:
    made = await ff_engine.create_execution(
        [given.new(execution_kind="job", lane_id="jobs") for _ in range(120)]
        + [given.new(execution_kind="other", lane_id="jobs")]
    )
    ended = made[0].execution_id  # pyright: ignore[reportAttributeAccessIssue]
    await ff_engine.cancel_execution(ended, reason="by hand", actor="ann")
    ann = await person(Role.OPERATOR, label="ann", namespaces=["default"])

    page = (await ann.get("/executions?kind=job")).text
    assert "Select all 120 matching" in page
    [matching] = re.findall(r'data-matching="/ui(/executions/bulk\?matching=1[^"]+)"', page)
    link = matching.replace("&amp;", "&") + "&do=cancel"
    dialog = (await ann.get(link)).text
    for text in ("Cancel 119 executions?", "of kind job", "1 cancelled will not change"):
        assert text in dialog, text
    form = {"_csrf": await form_token(ann, link), "reason": "no longer wanted", "seen": "119"}
    unsure = await ann.post(link, data=form)
    assert (unsure.status_code, "must be 119" in unsure.text) == (422, True)
    assert "no longer wanted" in unsure.text, "what was typed stays"
    begun = await ann.post(link, data={**form, "count": "119"})
    assert begun.status_code == 303, begun.text
    path = begun.headers["location"].removeprefix("/ui")

    assert "<b>0</b> of 119 done" in (await ann.get(path)).text
    async with db.transaction():
        assert await run_bulk_actions(db, 500) == 119
    assert "<b>119</b> of 119 done" in (await ann.get(path)).text
    assert "no longer wanted" in (await ann.get("/bulk")).text
    counts = await ff_engine.count_by_lane()
    assert [each.waiting for each in counts if each.lane_id == "jobs"] == [1]

    unfit = await ann.get("/executions/bulk?do=replay&matching=1&state=waiting")
    assert (unfit.status_code, "changes nothing that is waiting" in unfit.text) == (422, True)


async def test_a_change_of_many_lists_what_was_refused_and_can_be_stopped(
    served: Application, ff_engine: Engine, db: Connection, person: Person
) -> None:
    made = await ff_engine.create_execution([given.new(execution_kind="job") for _ in range(502)])
    ids = [each.execution_id for each in made]  # pyright: ignore[reportAttributeAccessIssue]
    await ff_engine.cancel_execution(ids[7], reason="by hand", actor="ann")
    bulk = await ff_engine.start_bulk_action(
        "block", executions=ids, reason="an audit", actor="bob", namespace="default"
    )
    async with db.transaction():
        await run_bulk_actions(db, 500)
    path = f"/bulk/{bulk.bulk_id}"
    ann = await person(Role.OPERATOR, label="ann", namespaces=["default"])

    page = (await ann.get(path)).text
    assert f'data-topics="bulk.{bulk.bulk_id}"' in page
    rows = re.findall(r'<tr data-id="([^"]+)"', page)
    assert rows == [f"{ids[7].partition_key}.{ids[7].uuid}"], "those that were refused come first"
    rows = re.findall(r'<tr data-id="', (await ann.get(f"{path}?result=all")).text)
    assert len(rows) == 50

    stop = {"_csrf": await form_token(ann, f"{path}/stop"), "reason": "the wrong ones"}
    assert (await ann.post(f"{path}/stop", data=stop)).status_code == 303
    assert "data-topics" not in (await ann.get(path)).text.partition("<main")[2]
    again = await ann.post(f"{path}/stop", data=stop)
    assert (again.status_code, "stopped already" in again.text) == (409, True)
    assert await ff_engine.read_execution_state(ids[501]) is PublicState.WAITING

    foreign = await person(Role.OPERATOR, label="eve", namespaces=["secret"])
    reader = await person(Role.READER, label="reader")
    assert (await foreign.get(path)).status_code == 404
    assert "an audit" not in (await foreign.get("/bulk")).text
    assert (await reader.get(path)).status_code == 200
    assert (await reader.get(f"{path}/stop")).status_code == 403
