"""Schedules by hand: made, changed with what they would fire next, and backfilled."""

from __future__ import annotations

import re
from datetime import timedelta

from flowfabric import Engine
from flowfabric.engine.events.operator_events import OperatorEvent
from flowfabric.engine.schedules.definition import ScheduleDefinition
from flowfabric.schedules.spec import spec_of
from flowfabric.server.app import Application
from flowfabric.states import Role, ScheduleOverlap, ScheduleSource
from tests.dashboard.conftest import Person, browser, form_token, send

NEW = {
    "name": "digest",
    "namespace": "default",
    "cron": "30 2 * * *",
    "tz": "Europe/Berlin",
    "kind": "send_digest",
    "lane": "mail",
    "input": '{"to": "ann", "password": "hunter2"}',
    "priority": "3",
    "tags": "shop.tenant=acme",
    "overlap": "queue_one",
    "catch_up": "2",
    "catch_up_window": "2h",
    "jitter": "30s",
}


async def test_a_schedule_is_made_and_changed_with_a_look_at_what_it_would_fire(
    served: Application, ff_engine: Engine
) -> None:
    async with browser(served) as admin:
        token = await form_token(admin, "/schedules/new")
        for given, said in (
            ({}, "At 02:30 every day. Next:"),
            ({"cron": "", "every": "15m"}, "Every 15 m. Next:"),
            ({"cron": "61 * * * *"}, "is not a cron expression"),
            ({"tz": "Mars/Base"}, "is not the name of a time zone"),
            ({"every": "15m"}, "one of the three"),
            ({"until": "2020-01-01"}, "It would never fire"),
        ):
            data = {"_csrf": token, "_preview": "yes", **NEW, **given}
            answer = await admin.post("/schedules/new", data=data)
            assert said in answer.text, given
        assert (await ff_engine.list_schedules()).schedules == []

        await send(admin, "/schedules/new", NEW)
        made = await ff_engine.get_schedule("digest")
        d = made.definition
        assert (str(d.spec), d.execution_kind, d.lane_id, d.priority) == (
            "30 2 * * * (Europe/Berlin)", "send_digest", "mail", 3,
        )  # fmt: skip
        assert (d.overlap, d.catch_up, d.jitter) == (
            ScheduleOverlap.QUEUE_ONE, 2, timedelta(seconds=30),
        )  # fmt: skip
        assert (d.tags, d.source) == ({"shop.tenant": "acme"}, ScheduleSource.API)
        assert made.created_by == "local"
        for wrong in ({"cron": "x"}, {"kind": ""}, {"jitter": "soon"}, {"tags": "a"}):
            await send(admin, "/schedules/new", {**NEW, "name": "other", **wrong}, (400, 422))

        range_ = {"start": "2026-01-01T00:00", "end": "2026-01-05T00:00", "_preview": "yes"}
        token = await form_token(admin, "/schedules/digest/backfill")
        answer = await admin.post("/schedules/digest/backfill", data={"_csrf": token, **range_})
        assert "4 instants lie in it" in answer.text

        edit = {**NEW, "cron": "", "every": "15m", "tz": "", "reason": "more often"}
        shown = (await admin.get("/schedules/digest/edit")).text
        [seen] = re.findall(r'name="seen" value="([^"]+)"', shown)
        await ff_engine.trigger_schedule("digest", reason="now")  # a firing is no change by hand
        await send(admin, "/schedules/digest/edit", {**edit, "seen": seen})
        stale = await send(admin, "/schedules/digest/edit", {**edit, "seen": seen}, 412)
        assert "It changed while you looked" in stale
        assert (await ff_engine.get_schedule("digest")).edited_by is None  # not from code
        page = (await admin.get("/schedules/digest")).text
        assert "Every 15 m" in page
    page = await ff_engine.list_events("operator", limit=5)
    [updated] = [
        each
        for each in page.events
        if isinstance(each, OperatorEvent) and each.event_type == "schedule_updated"
    ]
    assert (updated.actor, updated.reason) == ("local", "more often")


async def test_one_from_code_is_marked_once_it_is_changed_by_hand_and_keeps_its_input(
    ff_engine: Engine, person: Person
) -> None:
    code = ScheduleDefinition(
        name="nightly",
        spec=spec_of(cron="0 2 * * *"),
        execution_kind="report",
        input_payload=b'{"password": "hunter2"}',
        payload_encoding="json",
        source=ScheduleSource.CODE,
    )
    await ff_engine.create_schedule(code)
    ann = await person(Role.OPERATOR, label="ann")
    dialog = (await ann.get("/schedules/nightly/edit")).text
    assert "It is defined in code" in dialog
    assert "hunter2" not in dialog

    given = {**NEW, "input": "", "cron": "0 3 * * *", "tz": "UTC", "reason": "quieter"}
    await send(ann, "/schedules/nightly/edit", given)

    found = await ff_engine.get_schedule("nightly")
    assert (found.edited_by, found.definition.input_payload) == ("ann", code.input_payload)
    assert "drift" in (await ann.get("/schedules")).text
    assert "ann has changed it by hand" in (await ann.get("/schedules/nightly")).text
    await ff_engine.sync_schedules([code])
    assert (await ff_engine.get_schedule("nightly")).edited_by is None
    assert "drift" not in (await ann.get("/schedules")).text
    reader = await person(Role.READER)
    assert (await reader.get("/schedules/new")).status_code == 403
