"""Every page: it answers, escapes what people wrote, and its acts do what they say."""

from __future__ import annotations

import re
import socket
from datetime import timedelta

import html5lib

from flowfabric import Engine
from flowfabric.conditions import Single
from flowfabric.db.rows import Connection
from flowfabric.engine.events.operator_events import OperatorEvent
from flowfabric.server.app import Application
from flowfabric.states import LaneState, PublicState, Role
from flowfabric.testing import Clock
from tests.dashboard.busy import HOSTILE, Busy
from tests.dashboard.conftest import Person, browser, form_token
from tests.dashboard.test_access import paths_of
from tests.engine.suspensions.given_suspended import suspended
from tests.worker.facts import eventually

WHY = "for the tests"
SVG = "{http://www.w3.org/2000/svg}"


def markup_of(text: str) -> list[str]:
    """What a parser finds that no template of ours has."""
    found: list[str] = []
    for element in html5lib.parse(text, namespaceHTMLElements=False).iter():
        name = str(element.tag)
        if name in ("img", "iframe", "object", "embed", "b1"):
            found.append(name)
        if name == "script" and "static/" not in element.attrib.get("src", ""):
            found.append("script")
        for attribute, value in element.attrib.items():
            if str(attribute).startswith("on") or str(attribute) == "style":
                found.append(f"{name} {attribute}")
            if str(attribute) in ("href", "src", "action") and not value.startswith(
                ("/", "#", "?")
            ):
                found.append(f"{name} {attribute}={value}")
    return found


async def test_every_page_answers_and_no_text_becomes_markup(
    served: Application, busy: Busy, ff_engine: Engine
) -> None:
    await ff_engine.set_lane_state("idle lane", LaneState.PAUSED, actor=HOSTILE, reason=HOSTILE)
    await ff_engine.cancel_execution(busy.delayed, reason=HOSTILE, actor=HOSTILE)
    shown = 0
    async with browser(served) as person:
        extra = [
            busy.path(name)
            for name in busy.__struct_fields__
            if name not in ("worker", "flow", "budget", "bulk", "quota", "waitpoint")
        ]
        extra += ["/lanes/idle lane", "/settings?tab=info", "/settings?tab=doctor&run=1"]
        extra += [f"/executions/bulk?do=replay&matching=1&reason={HOSTILE}"]
        extra += [f"/search?q={HOSTILE}", f"/executions?kind={HOSTILE}", "/search?q=order-1"]
        extra += [f"/executions?reason={HOSTILE}&tag=a.b={HOSTILE}", f"/workers?lane={HOSTILE}"]
        for path in [*paths_of(busy).values(), *paths_of(busy, "active").values(), *extra]:
            answer = await person.get(path)
            assert answer.status_code in (200, 303, 404), (path, answer.text)
            if "/payload/" in path or answer.status_code == 303:
                continue
            assert markup_of(answer.text) == [], path
            shown += HOSTILE[:28].replace("<", "&lt;").replace(">", "&gt;") in answer.text
            assert answer.text.count("<h1") == 1, path
        for path in ("/nothing", "/executions/1.x", "/executions/9999.0", "/executions?state=odd"):
            answer = await person.get(path)
            assert answer.status_code in (404, 422), path
            assert "req_" in answer.text
    assert shown > 10


async def test_every_region_of_a_page_is_answered_alone_and_once(
    served: Application, busy: Busy
) -> None:
    async with browser(served) as person:
        for path, region in (
            ("/executions", "list"),
            (busy.path("active"), "x"),
            ("/", "overview"),
            ("/events", "events"),
            ("/approvals", "inbox"),
            ("/schedules", "schedules"),
            ("/schedules/nightly", "schedule"),
            ("/budgets", "budgets"),
            ("/lanes", "lanes"),
            ("/lanes/orders", "lane"),
            ("/workers", "workers"),
            (f"/workers/{busy.worker}", "worker"),
            ("/flows", "flows"),
            ("/bulk", "bulk_list"),
            (f"/bulk/{busy.bulk}", "bulk"),
            (f"/flows/{busy.flow}", "head"),
            (f"/flows/{busy.flow}", "graph"),
        ):
            alone = await person.get(path, params={"_region": region})
            assert alone.text.lstrip().startswith("<section"), path
            assert f'data-region="{region}"' in alone.text
            assert "<form" not in alone.text, "a region is shared, so it has no form"
            assert "_csrf" not in alone.text
            again = await person.get(
                path, params={"_region": region}, headers={"if-none-match": alone.headers["etag"]}
            )
            assert again.status_code in (200, 304)
        assert (await person.get("/lanes?_region=other")).status_code == 404


async def test_the_list_is_filtered_paged_and_exported(served: Application, busy: Busy) -> None:
    async with browser(served) as person:
        for query, there, absent in (
            ("state=failed", busy.failed, busy.completed),
            ("state=active&state=suspended", busy.suspended, busy.failed),
            ("kind=charge_card", busy.failed, busy.active),
            ("lane=orders", busy.suspended, busy.active),
            ("tag=shop.tenant=acme", busy.completed, busy.failed),
            ("key=order-1", busy.completed, busy.failed),
            ("reason=the bank did not", busy.failed, busy.completed),
            ("min_attempts=2", busy.failed, busy.completed),
        ):
            page = (await person.get(f"/executions?{query}")).text
            assert str(there.uuid) in page, query
            assert str(absent.uuid) not in page, query
        nothing = (await person.get("/executions?kind=charge_card&lane=orders")).text
        assert "Nothing matches" in nothing
        assert "without lane" in nothing
        asked = await person.get("/search?q=state:failed kind:charge_card")
        assert asked.headers["location"] == "/ui/executions?state=failed&kind=charge_card"
        for text in (
            busy.active,
            f"{busy.active.partition_key}.{busy.active.uuid}",
            busy.active.uuid,
        ):
            found = await person.get("/search", params={"q": str(text)})
            assert found.headers["location"] == f"/ui{busy.path('active')}"
        table = (await person.get("/executions?format=csv&state=failed")).text
        assert table.splitlines()[0].startswith("execution_id,namespace")
        assert str(busy.failed) in table


async def _send(person, path: str, data: dict[str, str], status: int = 303) -> str:
    token = await form_token(person, path)
    answer = await person.post(path, data={"_csrf": token, **data})
    assert answer.status_code == status, answer.text
    return answer.text


async def test_acts_change_executions_and_keep_who_and_why(
    served: Application, busy: Busy, ff_engine: Engine, person: Person
) -> None:
    ann = await person(Role.OPERATOR, label="ann")
    waiting = busy.path("waiting")

    await _send(ann, f"{waiting}/priority", {"priority": "7", "reason": "vip"})
    await _send(ann, f"{waiting}/block", {"reason": "wait for the audit"})
    await _send(ann, f"{waiting}/unblock", {"reason": "audited"})
    await _send(ann, f"{waiting}/tag", {"key": "shop.tier", "value": "gold"})
    await _send(ann, f"{waiting}/cancel", {"reason": "no longer wanted"})
    payload = {"name": "approved", "payload": '{"by": "ann"}', "reason": "paid"}
    await _send(ann, f"{busy.path('suspended')}/signal", payload)
    await _send(ann, f"{busy.path('failed')}/replay", {"from": "failure", "reason": "bank is back"})
    await _send(ann, f"{busy.path('active')}/revoke", {"reason": "stuck"})
    await _send(ann, "/lanes/orders/drain", {"reason": "moving"})
    await _send(ann, "/lanes/orders/retention", {"retention": "12h", "reason": "disk"})
    await _send(ann, "/schedules/nightly/pause", {"reason": "holidays"})
    await _send(ann, "/schedules/nightly/resume", {"reason": "over", "catch_up": "yes"})
    await _send(ann, "/schedules/nightly/trigger", {"reason": "today too", "force": "yes"})
    await _send(
        ann,
        f"/budgets/{busy.budget}/limits",
        {"hard.tokens": "5", "soft.tokens": "4", "reason": "dear"},
    )
    await _send(ann, f"/budgets/{busy.budget}/reset", {"reason": "new month"})
    worker = (await ann.get(f"/workers/{busy.worker}")).text
    assert f"<dt>Host</dt><dd>{socket.gethostname()}</dd>" in worker
    assert "Lost leases" in worker  # the one that was revoked
    assert "charge_card" in worker[worker.index("Ended attempts") :]
    await _send(ann, f"/workers/{busy.worker}/dead", {"reason": "old"})
    text = await _send(
        ann, f"/executions/bulk?do=replay&id={waiting.rpartition('/')[2]}", {"reason": "after all"}
    )
    assert text == ""

    page = await ff_engine.list_events("operator", limit=50)
    acted = {each.event_type.value: each for each in page.events if isinstance(each, OperatorEvent)}
    for word in [
        "priority_changed",
        "blocked",
        "unblocked",
        "cancelled",
        "replayed",
        "lease_revoked",
        "lane_state_changed",
    ]:
        assert acted[word].actor == "ann", word
    assert acted["cancelled"].reason == "no longer wanted"
    assert await ff_engine.get_execution_tag(busy.waiting, "shop.tier") == "gold"

    async def shipped() -> bool:
        state = await ff_engine.read_execution_state(busy.suspended)
        return state is PublicState.COMPLETED

    await eventually(shipped)


async def test_a_refused_act_says_why_and_changes_nothing(
    served: Application, busy: Busy, ff_engine: Engine
) -> None:
    async with browser(served) as person:
        cancel, signal = f"{busy.path('waiting')}/cancel", f"{busy.path('suspended')}/signal"
        assert "must have 3 to 1,000" in await _send(person, cancel, {"reason": "x"}, 422)
        await _send(person, cancel, {"reason": "because", "seen": "no version"}, 422)
        wrong = {"name": "approved", "payload": "{not json", "reason": "because"}
        assert "is not JSON" in await _send(person, signal, wrong, 422)
        assert "{not json" in await _send(person, signal, wrong, 422), "what was typed stays"
        data = {"priority": "12000", "reason": "because"}
        path = f"{busy.path('waiting')}/priority"
        assert "must be 0 to 9000" in await _send(person, path, data, 422)
        done = f"{busy.path('completed')}/cancel"
        refused = await _send(person, done, {"reason": "because"}, 422)
        assert "It was not done" in refused
        assert "invalid_input" in refused
        new = {"kind": "build", "lane": "default", "namespace": "default", "priority": "0"}
        made = await _send(person, "/executions/new", {**new, "input": '"abc"', "tags": "a.b=c"})
        assert made == ""
    assert await ff_engine.read_execution_state(busy.waiting) is PublicState.WAITING


async def test_an_act_is_refused_if_the_execution_changed_since_its_page_was_shown(
    served: Application, busy: Busy, ff_engine: Engine, clock: Clock
) -> None:
    async with browser(served) as person:
        page = (await person.get(busy.path("waiting"))).text
        for word, more in (("cancel", {}), ("block", {}), ("priority", {"priority": "3"})):
            [link] = re.findall(rf'href="/ui(/executions/[^"]+/{word}\?seen=[\w.]+)"', page)
            await clock.advance(timedelta(seconds=5))
            await ff_engine.change_priority(busy.waiting, 5, reason="in a hurry", actor="bob")
            dialog = (await person.get(link)).text
            [seen] = re.findall(r'name="seen" value="([\w.]+)"', dialog)
            assert link.endswith(seen), "the version of the page, not of the dialog"

            stale = await _send(person, link, {"reason": "my <reason>", "seen": seen, **more}, 412)

            assert "It changed while you looked" in stale
            assert "It is waiting now, after 0 attempts" in stale
            assert "priority changed by bob (in a hurry)" in stale
            assert "my &lt;reason&gt;" in stale, "what was typed stays"
            [newer] = re.findall(r'name="seen" value="([\w.]+)"', stale)
            assert newer > seen
        assert await ff_engine.read_execution_state(busy.waiting) is PublicState.WAITING
        await _send(person, link, {"reason": "all the same", "seen": newer, **more})

        path = f"{busy.path('active')}/cancel"
        [seen] = re.findall(r'name="seen" value="([\w.]+)"', (await person.get(path)).text)
        moment, _, rest = seen.partition(".")
        before_a_progress_report = f"{int(moment) - 1}.{rest}"
        await _send(person, path, {"reason": "enough", "seen": before_a_progress_report})


async def test_a_script_gets_the_dialog_alone_and_the_answer_as_json(
    served: Application, busy: Busy
) -> None:
    headers = {"x-ff-dialog": "1"}
    async with browser(served) as person:
        path = f"{busy.path('waiting')}/block"
        dialog = (await person.get(path, headers=headers)).text
        assert dialog.lstrip().startswith("<form")
        token = await form_token(person, path)
        data = {"_csrf": token, "reason": "hold on"}
        answer = await person.post(path, data=data, headers=headers)
        assert answer.json()["message"] == "The execution is held back."
        missing = await person.get("/executions/1.x/cancel", headers=headers)
        assert (missing.status_code, missing.headers["content-type"]) == (
            404,
            "text/plain; charset=utf-8",
        )


async def test_an_approval_is_answered_and_a_token_is_shown_once(
    served: Application, ff_engine: Engine, db: Connection
) -> None:
    waits = await suspended(db, Single("refund", "approved"), execution_kind="refund")
    x = waits.execution_id
    path = f"/approvals/{x.partition_key}.{x.uuid}/{waits.waitpoint_id('refund')}/answer"
    async with browser(served) as person:
        assert path in (await person.get("/approvals")).text
        assert "approval is open" in (await person.get("/")).text
        assert (
            "1 open waitpoints have tokens of k1; some never expire"
            in (await person.get("/keys/rotate")).text
        )
        assert (
            '<td data-label="Open waitpoints"><span>1</span></td>'
            in (await person.get("/keys")).text
        )
        await _send(person, path, {"signal": "approved", "reason": "the goods came back"})
        assert await ff_engine.read_execution_state(x) is PublicState.RESUMABLE
        decided = await person.get(path)
        assert (decided.status_code, "decided elsewhere" in decided.text) == (404, True)

        odd = {"kid": "k2", "grace": "1h", "reason": "yearly", "secret": "not hex"}
        refused = await _send(person, "/keys/rotate", odd, 400)
        assert "hex digits" in refused
        assert "not hex" not in refused
        own = {**odd, "secret": "0f" * 32}
        await _send(person, "/keys/rotate", own)
        await _send(person, "/keys/rotate", own)  # the same key: nothing is rotated
        assert (await ff_engine.list_waitpoint_hmac_kids()).current_kid == "k2"
        form = {"label": "ann", "role": "admin", "namespaces": "*", "expires": "90d", "reason": WHY}
        shown = await _send(person, "/tokens/new", form, 200)
        [token] = await ff_engine.list_tokens()
        assert f"{token.label}" in shown
        assert "ff_" in shown


async def test_whoever_makes_the_first_token_is_not_locked_out(
    served: Application, ff_engine: Engine
) -> None:
    form = {"label": "ann", "role": "reader", "namespaces": "*", "expires": "", "reason": WHY}
    async with browser(served) as person:
        asked = (await person.get("/tokens/new")).text
        assert "closed to everybody without a token" in asked
        assert "operator" not in asked
        assert "must be admin" in await _send(person, "/tokens/new", form, 422)
        form["role"] = "admin"
        narrow = {**form, "namespaces": "default"}
        assert "must be *" in await _send(person, "/tokens/new", narrow, 422)
        assert await ff_engine.list_tokens() == []

        await _send(person, "/tokens/new", form, 200)
        served.services.authenticator._open = None  # pyright: ignore
        assert (await person.get("/keys")).status_code == 200
        assert "closed to everybody" not in (await person.get("/tokens/new")).text
        await _send(person, "/tokens/new", {**form, "label": "bob", "role": "reader"}, 200)
        assert [each.created_by for each in await ff_engine.list_tokens()] == ["ann", "local"]
    async with browser(served) as stranger:
        assert (await stranger.get("/keys")).status_code == 303


async def test_a_filter_is_saved_for_oneself_or_for_everybody_and_forgotten(
    ff_engine: Engine, person: Person
) -> None:
    ann = await person(Role.OPERATOR, label="ann", namespaces=["default"])
    bob = await person(Role.CLIENT, label="bob", namespaces=["default"])
    save = "/queries/save?state=failed&state=expired&kind=a%26b&tag=shop.tenant=acme"
    await _send(ann, save, {"name": HOSTILE})
    await _send(ann, save, {"name": "shared one", "shared": "yes"})
    assert "nothing to save" in (await ann.get("/queries/save")).text
    assert (await ann.get("/queries/save?state=odd")).status_code == 422
    await _send(ann, save, {"name": ""}, 422)
    await ff_engine.save_query("from elsewhere", "javascript:alert(1)&x=1&lane=pay", owner="ann")

    page = (await ann.get("/executions")).text
    assert markup_of(page) == []
    link = "/ui/executions?state=failed&amp;state=expired&amp;kind=a%26b&amp;tag=shop.tenant%3Dacme"
    assert page.count(f'href="{link}"') == 2
    assert 'href="/ui/executions?lane=pay"' in page
    forgets = re.findall(r'href="/ui(/queries/[^"]+/forget)"', page)
    assert len(forgets) == 3
    seen = (await bob.get("/executions")).text
    assert ("shared one" in seen, "from elsewhere" in seen, "/forget" in seen) == (
        True,
        False,
        False,
    )
    assert {(await bob.get(each)).status_code for each in forgets} == {404}

    for each in forgets:
        await _send(ann, each, {})
    assert "saved by" not in (await ann.get("/executions")).text
