"""Who may look, who may change, and from where."""

from __future__ import annotations

import httpx
import pytest

from flowfabric import Engine
from flowfabric.dashboard import csrf
from flowfabric.dashboard.access import PAGE, SESSION
from flowfabric.dashboard.login import safe_target
from flowfabric.dashboard.routes import ROUTES
from flowfabric.dashboard.settings import READONLY
from flowfabric.dashboard.table import Act
from flowfabric.server.app import Application
from flowfabric.states import LaneState, PublicState, Role
from tests.all_cases import all_cases
from tests.dashboard.busy import Busy
from tests.dashboard.conftest import Person, browser, form_token, log_in

OWN = ("/logout", "/prefs")
"""Acts that change nothing beside the cookies of the browser and its session."""


def paths_of(busy: Busy, execution: str = "waiting") -> dict[str, str]:
    """Every row of the route table with ids that exist."""
    found = getattr(busy, execution)
    ids = {
        "{execution_id}": f"{found.partition_key}.{found.uuid}",
        "{part}": "input",
        "{lane}": "orders",
        "{instance}": busy.worker,
        "{flow_id}": str(busy.flow),
        "{session_id}": str(found.uuid),
        "{waitpoint_id}": str(found.uuid),
        "{token_id}": str(found.uuid),
        "{budget_id}": str(busy.budget),
        "{quota_id}": str(busy.quota),
        "{name}": "nightly",
        "{bulk_id}": str(busy.bulk),
    }
    paths: dict[str, str] = {}
    for row in ROUTES:
        path = row.path
        for name, value in ids.items():
            path = path.replace(name, value)
        if row.path == "/executions/bulk":
            path += f"?do=cancel&id={ids['{execution_id}']}"
        if row.path == "/queries/save":
            path += "?state=failed"
        if "{" not in path:
            paths[row.path] = path
    return paths


async def test_changes_need_a_token_of_the_page_and_the_same_origin(
    served: Application, busy: Busy, ff_engine: Engine
) -> None:
    paths = paths_of(busy)
    refused: list[str] = []
    async with browser(served) as person:
        await person.get("/lanes")
        valid = csrf.token(person.cookies[PAGE])
        for row in ROUTES:
            if not isinstance(row, Act) or row.path not in paths:
                continue
            for headers, token in (
                ({"sec-fetch-site": "same-origin"}, ""),
                ({"sec-fetch-site": "same-origin"}, csrf.token("another secret")),
                ({"sec-fetch-site": "same-origin"}, "no token"),
                ({"sec-fetch-site": "cross-site"}, valid),
                ({"sec-fetch-site": "same-site"}, valid),
                ({"sec-fetch-site": "none"}, valid),
            ):
                data = {"_csrf": token, "reason": "because"}
                answer = await person.post(paths[row.path], data=data, headers=headers)
                assert answer.status_code == 403, (row.path, headers, answer.text)
                refused.append(row.path)
        foreign = browser(served, origin="https://evil.example")
        foreign.headers.pop("sec-fetch-site")
        foreign.cookies = person.cookies
        for path in ("/lanes/orders/pause", f"{busy.path('waiting')}/cancel"):
            answer = await foreign.post(path, data={"_csrf": valid, "reason": "because"})
            assert answer.status_code == 403
        await foreign.aclose()
    assert len(refused) >= 6 * 15
    state = await ff_engine.read_execution_state(busy.waiting)
    assert state is PublicState.WAITING
    assert {each.lane_state for each in await ff_engine.count_by_lane()} == {LaneState.ACTIVE}


async def test_a_person_logs_in_by_a_token_and_out_again(
    served: Application, ff_engine: Engine
) -> None:
    token = await ff_engine.create_token("ann", role=Role.OPERATOR)
    async with browser(served) as person:
        nobody = await person.get("/lanes?ns=x")
        assert nobody.status_code == 303
        assert nobody.headers["location"] == "/ui/login?next=%2Flanes%3Fns%3Dx"
        for region in ({"x-ff-region": "1"}, {"x-ff-dialog": "1"}):
            assert (await person.get("/lanes", headers=region)).status_code == 401
        assert (await person.get("/live?t=list")).status_code == 401
        from_mail = await person.get("/lanes", headers={"sec-fetch-site": "cross-site"})
        assert 'http-equiv="refresh"' in from_mail.text

        wrong = await log_in(person, "ff_wrong")
        assert wrong.status_code == 401
        assert "not valid here" in wrong.text
        assert SESSION not in person.cookies
        answer = await log_in(person, token.token)
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/lanes")
        [cookie] = [c for c in answer.headers.get_list("set-cookie") if c.startswith(SESSION)]
        for part in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=604800"):
            assert part in cookie
        assert (await person.get("/lanes")).status_code == 200

        data = {"_csrf": await form_token(person, "/logout")}
        out = await person.post("/logout", data=data)
        assert out.headers["location"] == "/ui/login"
        assert (await person.get("/lanes")).status_code == 303


async def test_workers_cannot_log_in_and_tries_are_counted(
    served: Application, ff_engine: Engine
) -> None:
    token = await ff_engine.create_token("w", role=Role.WORKER)
    async with browser(served) as person:
        answers = [(await log_in(person, token.token)).status_code for _ in range(6)]
    assert answers == [401, 401, 401, 401, 401, 429]


async def test_a_revoked_token_ends_its_sessions(
    served: Application, ff_engine: Engine, person: Person
) -> None:
    ann = await person(Role.OPERATOR, label="ann")
    [token] = await ff_engine.list_tokens()
    assert (await ann.get("/lanes")).status_code == 200
    await ff_engine.revoke_token(token.token_id)
    for site in served.mounted.values():  # the ten seconds are over
        site.site.access.forget_kept()  # pyright: ignore
        site.site.access._authenticator._kept.clear()  # pyright: ignore

    assert (await ann.get("/lanes")).status_code == 303


async def test_roles_see_and_do_what_is_theirs(busy: Busy, person: Person) -> None:
    allowed = {
        Role.READER: set[str](),
        Role.CLIENT: {"cancel", "tag", "signal", "new"},
        Role.OPERATOR: {"cancel", "tag", "signal", "new", "replay", "bulk", "dead", "pause"},
    }
    paths = paths_of(busy, "suspended")
    for role, words in allowed.items():
        someone = await person(role)
        page = await someone.get(busy.path("suspended"))
        assert page.status_code == 200
        assert ("read-only" in page.text) == (role is Role.READER)
        assert ("/cancel" in page.text) == ("cancel" in words)
        for row in ROUTES:
            word = row.path.rpartition("/")[2]
            acts = {"cancel", "replay", "bulk", "dead", "new"}
            if not isinstance(row, Act) or word not in acts or row.path.startswith("/tokens"):
                continue
            others = ("/flows/", "/schedules/", "/budgets/", "/quotas/")
            operators = row.path.startswith(others)  # acts on these need an operator
            expected = 200 if word in words and (not operators or "replay" in words) else 403
            assert (await someone.get(paths[row.path])).status_code == expected, (role, row.path)
            if expected == 403:
                token = csrf.token(someone.cookies[SESSION])
                answer = await someone.post(
                    paths[row.path], data={"_csrf": token, "reason": "because"}
                )
                assert answer.status_code == 403, (role, row.path)


async def test_lanes_are_controlled_by_operators_of_all_namespaces(
    busy: Busy, person: Person
) -> None:
    local = await person(Role.OPERATOR, label="local one", namespaces=["default"])
    everywhere = await person(Role.OPERATOR, label="everywhere")

    assert (await local.get("/lanes/orders/pause")).status_code == 403
    assert (await everywhere.get("/lanes/orders/pause")).status_code == 200


async def test_a_foreign_namespace_answers_like_an_unknown_id(busy: Busy, person: Person) -> None:
    ann = await person(Role.OPERATOR, namespaces=["default"])
    unknown = busy.foreign.uuid.hex[::-1]
    uuid = f"{unknown[:8]}-{unknown[8:12]}-{unknown[12:16]}-{unknown[16:20]}-{unknown[20:]}"
    for suffix in ("", "/cancel", "/replay", "?_region=x"):
        foreign = await ann.get(f"{busy.path('foreign')}{suffix}")
        other = await ann.get(f"/executions/{busy.foreign.partition_key}.{uuid}{suffix}")
        assert (foreign.status_code, other.status_code) == (404, 404)
        assert _plain(foreign, str(busy.foreign.uuid)) == _plain(other, uuid)
    for path in ("/executions", "/executions?kind=hidden_kind", f"/search?q={busy.foreign.uuid}"):
        assert "hidden_kind" not in (await ann.get(path)).text.replace(
            "kind=hidden_kind", ""
        ).replace("of kind hidden_kind", "").replace('value="hidden_kind"', "")
    assert (await ann.get("/executions?ns=secret")).status_code == 404
    assert "hidden_kind" not in (await ann.get("/executions?format=json")).text
    admin = await person(Role.ADMIN)
    assert "hidden_kind" in (await admin.get("/executions")).text


def _plain(answer: httpx.Response, uuid: str) -> str:
    """The page without what differs between any two requests."""
    text = answer.text.replace(uuid, "ID")
    return text.partition("<main")[2].partition("req_")[0]


async def test_read_only_refuses_every_change(
    ff_engine: Engine, busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flowfabric.dashboard import mounting
    from flowfabric.server.app import app
    from flowfabric.server.settings import Settings

    monkeypatch.setenv(READONLY, "1")
    application = app(ff_engine, Settings(api_tokens=()), mounting=mounting)
    paths = paths_of(busy)
    async with browser(application) as person:
        assert "read-only" in (await person.get("/executions")).text
        token = csrf.token(person.cookies[PAGE])
        for row in ROUTES:
            if isinstance(row, Act) and row.path in paths and row.path not in OWN:
                data = {"_csrf": token, "reason": "because"}
                status = (await person.post(paths[row.path], data=data)).status_code
                assert status == (404 if row.path.startswith("/sessions") else 403), row.path
    await application.close()


async def test_payloads_are_redacted_or_hidden(busy: Busy, person: Person) -> None:
    operator = await person(Role.OPERATOR, label="op")
    page = (await operator.get(busy.path("completed"))).text
    assert "4111111111111111" not in page
    assert "••• (16 characters)" in page
    assert "12345678901234567890123" in page
    assert "hunter2" not in (await operator.get(busy.path("suspended"))).text
    assert (await operator.get(f"{busy.path('completed')}/reveal")).status_code == 403
    admin = await person(Role.ADMIN, label="ad")
    assert "4111111111111111" in (await admin.get(f"{busy.path('completed')}/reveal")).text
    blind = await person(Role.OPERATOR, label="blind", hide_payloads=True)
    for name in ("completed", "failed", "suspended", "active"):
        page = (await blind.get(busy.path(name))).text
        assert "does not show payloads" in page
        for text in ("o-1", "shelf-", "12345678901234567890123", "Traceback", "segment"):
            assert text not in page, (name, text)


@all_cases(
    "given", ["//evil.example", "https://evil.example", "/\\evil.example", "x", "", "/a\nb", "/ä"]
)
def test_a_login_goes_on_below_the_dashboard_only(given: str) -> None:
    assert safe_target(given) == "/"
    assert safe_target("/executions?state=failed") == "/executions?state=failed"
