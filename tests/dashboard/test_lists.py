"""Lists of executions: counts, questions that are asked often, columns, the oldest of a lane."""

from __future__ import annotations

import html
import re
from datetime import timedelta

from flowfabric import Engine
from flowfabric.db.rows import Connection
from flowfabric.engine.activity.roll_up_activity import roll_up_activity
from flowfabric.engine.events.operator_events import OperatorEvent
from flowfabric.engine.lifecycle.create_execution import Created
from flowfabric.ids import ExecutionId
from flowfabric.server.app import Application
from flowfabric.states import LaneState
from flowfabric.testing import Clock
from tests import given
from tests.dashboard.busy import Busy
from tests.dashboard.conftest import browser, form_token, send
from tests.worker.facts import eventually

TAB = r'<a href="[^"]*"[^>]*>{word}<span class="count">([\d,]+)</span></a>'


async def _created(engine: Engine, count: int, **fields: str) -> list[ExecutionId]:
    made = await engine.create_execution([given.new(**fields) for _ in range(count)])
    assert all(isinstance(each, Created) for each in made)
    return [each.execution_id for each in made if isinstance(each, Created)]


async def test_a_lane_lists_the_oldest_that_wait_and_those_that_run_longest(
    served: Application, ff_engine: Engine, clock: Clock
) -> None:
    first = await _created(ff_engine, 3, lane_id="jobs")
    worker = given.Claimant(worker_id="w", worker_instance_id="w-1", lanes=("jobs",))
    [held] = await ff_engine.claim(worker, ttl=600)
    await clock.advance(timedelta(minutes=5))
    await _created(ff_engine, 30, lane_id="jobs")

    async with browser(served) as person:
        page = (await person.get("/lanes/jobs")).text.partition("Oldest waiting")[2]
        oldest = re.findall(r'<tr data-id="([^"]+)"', page)
        assert len(oldest) == 20
        assert set(oldest[:2]) == set(map(_path, first)) - {_path(held.lease.execution_id)}

        await ff_engine.claim(worker, ttl=600, limit=25)
        served.mounted["/ui"].site.changed()  # pyright: ignore
        page = (await person.get("/lanes/jobs")).text.partition("Longest running")[2]
        longest = re.findall(r'<tr data-id="([^"]+)"', page.partition("Oldest waiting")[0])
        assert (len(longest), longest[0]) == (20, _path(held.lease.execution_id))


def _path(execution_id: ExecutionId) -> str:
    return f"{execution_id.partition_key}.{execution_id.uuid}"


async def test_tabs_count_what_is_open_and_what_ended_in_the_window(
    served: Application, busy: Busy, db: Connection
) -> None:
    async with browser(served) as person:

        async def counted(query: str = "") -> dict[str, str]:
            page = (await person.get(f"/executions{query}")).text
            words = ("suspended", "completed", "failed")
            found = {word: re.search(TAB.format(word=word), page) for word in words}
            return {word: match[1] for word, match in found.items() if match}

        async def rolled_up() -> bool:
            async with db.transaction():
                await roll_up_activity(db, 1000)
            served.mounted["/ui"].site.changed()  # pyright: ignore
            return (await counted()).get("failed") == "1"

        await eventually(rolled_up)
        assert (await counted())["suspended"] == "2"
        assert await counted("?kind=charge_card") == {
            "suspended": "0",
            "completed": "1",
            "failed": "1",
        }
        assert "failed" not in await counted("?tag=shop.tenant=acme"), "it is not known cheaply"


async def test_questions_that_are_asked_often_find_what_they_say(
    served: Application, busy: Busy, ff_engine: Engine, clock: Clock
) -> None:
    old = await _created(ff_engine, 30, execution_kind="stuck", lane_id="orders")
    await clock.advance(timedelta(minutes=11))
    await _created(ff_engine, 1, execution_kind="young", lane_id="orders")
    async with browser(served) as person:
        links = re.findall(
            r'<a class="chip" href="([^"]+)">([^<]+)</a>', (await person.get("/executions")).text
        )
        asked = {label: href.replace("&amp;", "&").removeprefix("/ui") for href, label in links}
        assert list(asked)[:6] == [
            "Waiting too long",
            "Running longest",
            "Failed today",
            "Retried often",
            "Waits for a person",
            "Nobody can run it",
        ]
        long = (await person.get(asked["Waiting too long"] + "&limit=25")).text
        assert "created more than 10 m ago" in long
        assert "young" not in long
        [older] = re.findall(r'rel="next" href="/ui([^"]+)"', long)
        second = await person.get(older.replace("&amp;", "&"))
        assert second.status_code == 200
        assert "stuck" in second.text
        assert "young" not in second.text

        nobody = (await person.get(asked["Nobody can run it"])).text
        assert "that nobody can run" in nobody
        assert nobody.count(">stuck</a>") == len(old)
        assert f"…{str(busy.waiting)[-8:]}" in nobody
        await ff_engine.set_lane_state("default", LaneState.PAUSED, actor="ann", reason="wait")
        await _created(ff_engine, 1, execution_kind="charge_card")

        async def served_again() -> bool:
            """The worker has sent a heartbeat since the clock was moved."""
            return "charge_card</a>" not in (await person.get(asked["Nobody can run it"])).text

        await eventually(served_again)
        assert "charge_card</a>" in (await person.get("/executions?state=waiting")).text
        counted = (await person.get("/executions/bulk?do=cancel&matching=1&unserved=1")).text
        assert "that nobody can run" in counted

        table = (await person.get("/executions?cols=all")).text
        assert '<th scope="col" class="num">Priority</th>' in table
        assert 'data-label="Worker"' in table
        few = (await person.get("/executions?cols=lane")).text
        assert ('data-label="Lane"' in few, 'data-label="Created"' in few) == (True, False)


async def test_what_a_filter_has_besides_the_fields_of_the_form_stays(
    served: Application, busy: Busy
) -> None:
    async with browser(served) as person:
        page = (await person.get("/executions?min_attempts=2&tag=a.b=c&tag=d.e=f&unserved=1")).text
    form = page.partition('<form class="filters"')[2].partition("</form>")[0]
    for name, value in (("min_attempts", "2"), ("tag", "d.e=f"), ("unserved", "1")):
        assert f'type="hidden" name="{name}" value="{value}"' in form


async def test_the_reason_of_an_act_is_kept_by_its_event(
    served: Application, busy: Busy, ff_engine: Engine
) -> None:
    await ff_engine.block_execution_for_admission(busy.waiting, "paused_by_operator")
    async with browser(served) as person:
        await send(person, f"{busy.path('waiting')}/unblock", {"reason": "it is audited"})
        await send(
            person, "/lanes/orders/retention", {"retention": "12h", "reason": "disk is small"}
        )
        await send(person, "/keys/rotate", {"kid": "k7", "grace": "1h", "reason": "yearly"})
    page = await ff_engine.list_events("operator", limit=50)
    why = {e.event_type.value: e.reason for e in page.events if isinstance(e, OperatorEvent)}
    assert why["unblocked"] == "it is audited"
    assert why["lane_retention_changed"] == "disk is small"
    assert why["key_rotated"] == "yearly"


async def test_forms_say_what_they_would_do_before_they_are_sent(
    served: Application, busy: Busy, ff_engine: Engine
) -> None:
    async with browser(served) as person:
        token = await form_token(person, "/executions/new")
        for given_input, said in (('{"a": 1}', "The input is JSON, 8 B."), ("{a", "is not JSON")):
            data = {"_csrf": token, "_preview": "yes", "input": given_input, "priority": "0"}
            assert said in (await person.post("/executions/new", data=data)).text

        await ff_engine.cancel_execution(busy.suspended, reason="enough", actor="ann")
        again = (await person.get(f"{busy.path('suspended')}/replay")).text
        assert "It can be replayed 10 more times" in again
        assert "reserve: 2 of 2 calls are made again" in again
        assert "all 2 calls are made again" in again
        plain = (await person.get(f"{busy.path('failed')}/replay")).text
        assert 'name="from"' not in plain
        await send(
            person,
            f"{busy.path('suspended')}/replay",
            {"from": "step", "from_step": "reserve", "reason": "the shelf was empty"},
        )

        info = (await person.get("/settings?tab=info")).text
        assert re.search(r"<dt>Postgres</dt><dd>\d+", info)
        assert "REST API, dashboard" in info
        assert "<dt>Events of" in info
        member = (await person.get(busy.path("member"))).text
        assert re.search(r"<h1>(build|deploy . build)</h1>", member)
        assert "<h1>Search</h1>" not in (await person.get("/search?q=hidden_kind")).text


async def test_a_further_page_stands_still_and_says_that_newer_ones_exist(
    served: Application, ff_engine: Engine
) -> None:
    await ff_engine.create_execution([given.new(execution_kind="a") for _ in range(30)])
    async with browser(served) as person:
        first = (await person.get("/executions?limit=25")).text
        [following] = re.findall(r'rel="next" href="/ui([^"]+)"', first)
        second = (await person.get(html.unescape(following))).text

    assert "Newer ones exist" not in first
    assert "Newer ones exist" in second
    assert ('data-topics="list' in first, 'data-topics="list' in second) == (True, False)
