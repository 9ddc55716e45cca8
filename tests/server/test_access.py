"""Who may call what: generated from the route table, so that a new route is in it."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest

from flowfabric import Engine
from flowfabric.engine.access.secret import is_well_formed, new_secret
from flowfabric.errors import ConfigError
from flowfabric.server.access.principal import Principal
from flowfabric.server.app import Application
from flowfabric.server.routes import ROUTES
from flowfabric.server.serve import boot
from flowfabric.server.settings import Settings
from flowfabric.server.table import Kind, Route
from flowfabric.states import Role, Scope
from tests import given
from tests.server.conftest import Caller, client

As = Callable[..., Awaitable[Caller]]
PARAMETER = re.compile(r"\{(\w+)\}")
VALUES = {
    "execution_id": "{fp:86}:0189d0c3-0000-7000-8000-000000000000",
    "attempt_index": "0",
    "lane_id": "default",
    "name": "nightly",
    "key": "shop.tenant",
    "worker_instance_id": "w-1",
    "file": "index.html",
}
UUID = "0189d0c3-0000-7000-8000-000000000000"


def url(route: Route, **values: str) -> str:
    """The path of the route, with these values or any for its parameters."""
    known = {**VALUES, **values}
    return PARAMETER.sub(lambda found: known.get(found[1], UUID), route.path)


async def send(caller: Caller, route: Route, body: Any = None, **values: str) -> httpx.Response:
    """Call the route; without a body it is an empty object."""
    given = BODIES.get(route.name, {}) if body is None else body
    content = {"json": given} if route.body is not None else {}
    return await caller.request(route.method, url(route, **values), **content)


WORKER = {"worker_id": "w", "worker_instance_id": "w-1"}
BODIES: dict[str, Any] = {
    "block_execution_for_admission": {"reason": "paused_by_operator"},
    "change_priority": {"priority": 1},
    "set_execution_tag": {"value": "x"},
    "set_flow_tag": {"value": "x"},
    "override_fail": {"reason": "x"},
    "override_delay": {"delay": 1.0},
    "set_edge_group_policy": {"policy": {"type": "all_of"}},
    "send_signal": {"signal_name": "go"},
    "deliver_signal": {"signal_name": "go", "waitpoint_token": "k1:" + "0" * 64},
    "deliver_approval_signal": {"signal_name": "approved", "idempotency_suffix": "1"},
    "claim_execution": {**WORKER, "expected_attempt_index": 0},
    "claim_resumed_execution": WORKER,
    "issue_reclaim_grant": {**WORKER, "lane_id": "default"},
    "reclaim_execution": WORKER,
    "backfill_schedule": {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
    "mark_worker_dead": {"reason": "x"},
    "add_execution_to_flow": {"execution_id": VALUES["execution_id"]},
    "stage_dependency_edge": {
        "upstream": VALUES["execution_id"],
        "downstream": VALUES["execution_id"],
        "expected_graph_revision": 0,
    },
}
"""A body that is valid, for routes that ask for one."""


READ_APART = {
    *("claim_execution", "claim_resumed_execution", "issue_reclaim_grant", "reclaim_execution"),
    "close_waitpoint",
    *("deliver_signal", "send_signal", "list_signals", "read_history", "read_outcomes"),
}
"""Routes for whose execution the namespace is read by a statement of its own."""


def without(answer: httpx.Response, *names: str) -> str:
    """The body, without the id of the request and the names that the caller gave himself."""
    text = answer.text.replace(answer.headers["x-request-id"], "")
    for name in names:
        text = text.replace(name, "-")
    return re.sub(r"\{fp:\d+\}", "{fp}", text)  # follows from the id


GUARDED = [each for each in ROUTES if each.scope is not Scope.PUBLIC]


async def test_every_route_asks_for_a_valid_token_first(
    server: Application, ff_engine: Engine, called_as: As
) -> None:
    expired = await called_as(Role.ADMIN, expires_in=timedelta(milliseconds=1))
    revoked = await ff_engine.create_token("gone", role=Role.ADMIN)
    await ff_engine.revoke_token(revoked.token_id)
    callers = {
        "none": client(server),
        "unknown": client(server, authorization=f"Bearer {new_secret()}"),
        "another scheme": client(server, authorization="Basic QWRtaW46eA=="),
        "expired": expired,
        "revoked": client(server, authorization=f"Bearer {revoked.token}"),
    }
    server.services.authenticator._open = None
    await asyncio.sleep(0.01)
    wrong = [
        (name, route.method, route.path, answer.status_code)
        for name, caller in callers.items()
        for route in GUARDED
        if (answer := await send(caller, route)).status_code != 401
        or answer.headers["content-type"] != "application/problem+json"
    ]
    nowhere = await callers["none"].get("/v1/nowhere")
    for caller in callers.values():
        await caller.aclose()
    assert wrong == []
    assert nowhere.status_code == 401


async def test_every_route_refuses_roles_without_its_scope(called_as: As) -> None:
    wrong: list[Any] = []
    for role in Role:
        for namespaces in (["*"], ["shop"]):
            caller = await called_as(role, namespaces=namespaces)
            principal = Principal(who="", label="", role=role, namespaces=tuple(namespaces))
            for route in GUARDED:
                if route.kind is Kind.STREAM and route.scope in principal.scopes:
                    continue
                answer = await send(caller, route)
                refused = answer.status_code == 403 and answer.json().get("scope") == route.scope
                if refused == (route.scope in principal.scopes):
                    wrong.append((role, namespaces, route.method, route.path, answer.text))
    assert wrong == []


async def test_what_is_in_a_foreign_namespace_answers_like_what_does_not_exist(
    server: Application, called_as: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, current, apart = server.services.engine, "", set[str]()

    async def read_namespaces(executions: Any) -> Any:
        apart.add(current)
        return await Engine.read_namespaces(engine, executions)

    monkeypatch.setattr(engine, "read_namespaces", read_namespaces)
    owner = await called_as(Role.ADMIN)
    made = await owner.post(
        "/v1/flows",
        json={
            "flow_kind": "f",
            "namespace": "secret",
            "members": [
                {"execution_kind": "job", "member_name": "a", "input": "canary-payload"},
                {"execution_kind": "job", "member_name": "b"},
            ],
            "edges": [{"upstream": "a", "downstream": "b"}],
        },
    )
    flow_id = made.json()["flow_id"]
    members = (await owner.get(f"/v1/flows/{flow_id}/members")).json()["items"]
    execution_id = members[0]["execution_id"]
    edge = (await owner.get(f"/v1/flows/{flow_id}/edges")).json()["items"][0]["edge_id"]
    schedule = await owner.post(
        "/v1/schedules",
        json={
            "name": "nightly",
            "namespace": "secret",
            "execution_kind": "job",
            "spec": {"spec_kind": "cron", "cron": "0 3 * * *"},
        },
    )
    assert schedule.status_code == 201, schedule.text
    there = {"execution_id": execution_id, "flow_id": flow_id, "edge_id": edge}
    unknown = {"flow_id": UUID, "edge_id": edge}
    names = (execution_id, VALUES["execution_id"], flow_id, UUID)
    leaks: list[Any] = []
    states: dict[int, list[str]] = {}
    for role in (Role.ADMIN, Role.OPERATOR, Role.WORKER):
        caller = await called_as(role, namespaces=["shop"])
        for route in GUARDED:
            if not PARAMETER.search(route.path):
                continue
            current = route.name
            foreign = await send(caller, route, **there)
            nothing = await send(caller, route, **unknown)
            told, alike = without(foreign, *names), without(nothing, *names)
            if route.path.startswith(("/v1/executions/", "/v1/flows/")):
                states.setdefault(foreign.status_code, []).append(route.name)
            if (foreign.status_code, told) != (nothing.status_code, alike):
                leaks.append((role, route.method, route.path, foreign.text, nothing.text))
        for path in ("/v1/executions", "/v1/flows", "/v1/waitpoints", "/v1/schedules"):
            found = await caller.get(path)
            asked = await caller.get(path, params={"namespace": "secret"})
            other = await caller.get(path, params={"namespace": "nowhere"})
            if found.json()["items"] or (asked.status_code, other.status_code) != (403, 403):
                leaks.append((path, found.text, asked.text))
        current = "read_outcomes"
        outcomes = await caller.post("/v1/outcomes", json={"execution_ids": [execution_id]})
        events = await caller.get("/v1/events?family=operator")
        if outcomes.json() != {"outcomes": []} or events.json()["items"]:
            leaks.append(("outcomes or events", outcomes.text, events.text))
    assert leaks == [], "\n".join(map(str, leaks))
    # Refused before anything is looked up: the ids of these bodies do not fit together.
    early = {each for status in states for each in states[status] if status not in (403, 404)}
    assert early == {"add_execution_to_flow", "stage_dependency_edge"}
    # All others have the namespaces of the caller in their first statement.
    assert apart == READ_APART, " ".join(sorted(apart))


async def test_a_foreign_id_in_a_body_answers_like_an_unknown_one(
    db: Any, called_as: As, ff_engine: Engine
) -> None:
    secret = await given.created(db, namespace="secret")
    made = await ff_engine.create_flow(uuid4(), flow_kind="f", namespace="secret")
    budget = (await (await called_as(Role.ADMIN)).post("/v1/budgets", json=BUDGET)).json()
    caller = await called_as(Role.ADMIN, namespaces=["shop"])
    worker = await called_as(Role.WORKER, namespaces=["shop"])

    def asked(execution_id: str, flow_id: str) -> list[tuple[Caller, str, Any]]:
        new = {"execution_kind": "job", "flow_id": flow_id}
        one, many = {"execution_id": execution_id}, {"execution_ids": [execution_id]}
        keyed = {**new, "idempotency_key": "k", "unique_until": "ended"}
        spend = f"/v1/budgets/{budget['budget_id']}/spend"
        return [
            (caller, "/v1/executions", new),
            (caller, "/v1/executions/batch", {"executions": [new]}),
            (caller, "/v1/executions/unique", {"executions": [keyed]}),
            (caller, "/v1/executions/debounced", {"execution": keyed, "wait": 1.0}),
            (caller, "/v1/outcomes", many),
            (caller, "/v1/flows/outcomes", {"flow_ids": [flow_id]}),
            (caller, "/v1/signals", {"signals": [{**one, "signal_name": "go"}]}),
            (caller, "/v1/bulk-actions", {**many, "action": "cancel", "reason": "x"}),
            (worker, "/v1/grants", {**WORKER, **one, "lane_id": "default"}),
            (worker, "/v1/work/read-journal", many),
            (worker, "/v1/work/read-inbox", many),
            (worker, "/v1/work/read-wait", many),
            (worker, "/v1/work/fields", {**one, "names": ["priority"]}),
            (worker, "/v1/work/read-waitpoints", {**one, "waitpoint_ids": [UUID]}),
            (worker, "/v1/work/close-waitpoints", {**one, "waitpoint_ids": [UUID]}),
            (worker, "/v1/work/read-join", {"group": execution_id}),
            (worker, spend, {**one, "deltas": {"usd": 1}}),
            (worker, "/v1/quotas/few/admit", one),
        ]

    names = (str(secret), VALUES["execution_id"], str(made.flow_id), UUID)
    leaks: list[Any] = []
    there, nowhere = asked(str(secret), str(made.flow_id)), asked(VALUES["execution_id"], UUID)
    for (who, path, body), (_, _, other) in zip(there, nowhere, strict=True):
        foreign, unknown = await who.post(path, json=body), await who.post(path, json=other)
        told = (foreign.status_code, without(foreign, *names))
        if told != (unknown.status_code, without(unknown, *names)) or told[0] in (403, 422):
            leaks.append((path, foreign.text, unknown.text))
    lanes = (await worker.get("/v1/lanes")).json()["items"]
    assert leaks == [], "\n".join(map(str, leaks))
    assert [each["waiting"] for each in lanes] == [0]


BUDGET = {"hard_limits": {"usd": 5}}


async def test_the_token_is_in_no_log_url_or_error(
    server: Application, called_as: As, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caller = await called_as(Role.READER)
    token = caller.headers["authorization"].removeprefix("Bearer ")
    answers = [
        await caller.get("/v1/whoami"),
        await caller.get("/v1/tokens"),
        await caller.get("/v1/executions", params={"token": "x"}),
        await client(server, authorization=f"Bearer {token}x").get("/v1/info"),
    ]
    assert [each.status_code for each in answers] == [200, 403, 422, 401]
    told = caplog.text + "".join(each.text + str(each.headers) for each in answers)
    assert token not in told
    assert is_well_formed(token)
    assert not is_well_formed(token[:-1] + ("a" if token[-1] != "a" else "b"))


async def test_pages_of_other_sites_cannot_drive_the_server(http: Caller) -> None:
    body = {"execution_kind": "job"}
    foreign = await http.post(
        "/v1/executions", json=body, headers={"origin": "http://evil.example"}
    )
    crossed = await http.post("/v1/executions", json=body, headers={"sec-fetch-site": "cross-site"})
    rebound = await http.get("/v1/info", headers={"host": "evil.example"})
    own = await http.post("/v1/executions", json=body, headers={"origin": "http://localhost"})
    assert (foreign.status_code, crossed.status_code) == (403, 403)
    assert (foreign.json()["kind"], rebound.status_code) == ("cross_site", 421)
    assert "access-control-allow-origin" not in own.headers
    assert own.status_code == 201


ORIGINS = [
    ("localhost:9090", "http://localhost:9090", True),
    ("localhost:9090", "http://localhost:3000", False),
    ("localhost:9090", "http://localhost", False),
    ("localhost:9090", "null", False),
    ("localhost:9090", "http://[", False),
    ("localhost:9090", "http://localhost:x", False),
    ("[::1]:9090", "http://[::1]:9090", True),
    ("[::1]:9090", "http://[::1]:9091", False),
    ("localhost:443", "https://localhost", True),
    ("LOCALHOST", "https://localhost:8443", True),  # a proxy that leaves the port out
]


@pytest.mark.parametrize(("host", "origin", "own"), ORIGINS)
async def test_only_pages_of_the_same_host_and_port_change_something(
    http: Caller, host: str, origin: str, own: bool
) -> None:
    answer = await http.post(
        "/v1/lanes", json={"lanes": []}, headers={"host": host, "origin": origin}
    )
    assert answer.status_code == (204 if own else 403), answer.text


@pytest.mark.parametrize("listen", ["0.0.0.0:9090", "[::]:9090", "10.0.0.1:80"])
async def test_an_open_address_needs_a_token(ff_dsn: str, ff_engine: Engine, listen: str) -> None:
    config = ff_engine.pool.config
    with pytest.raises(ConfigError, match="ff tokens create"):
        await boot(config, Settings(listen=listen, api_tokens=()))
    await ff_engine.create_token("first", role=Role.ADMIN)
    engine = await boot(config, Settings(listen=listen, api_tokens=()))
    await engine.close()


async def test_payloads_are_hidden_from_tokens_that_must_not_see_them(
    db: Any, called_as: As
) -> None:
    execution_id = await given.created(db, input_payload=b'"canary"', payload_encoding="json")
    caller = await called_as(Role.READER, hide_payloads=True)
    answers = [
        await caller.get(f"/v1/executions/{execution_id}{path}")
        for path in ("", "/input", "/result", "/history", "/journal?values=true")
    ]
    assert "canary" not in "".join(each.text for each in answers)
    assert [each.status_code for each in answers] == [200, 403, 403, 200, 403]


async def test_results_and_inputs_of_schedules_are_hidden_too(
    ff_engine: Engine, called_as: As
) -> None:
    owner = await called_as(Role.ADMIN)
    made = await owner.post("/v1/executions", json={"execution_kind": "job"})
    await owner.post("/v1/work/claim", json=WORKER)
    path = made.headers["location"]
    done = await owner.post(f"{path}/complete", json={"result": "canary"})
    spec = {"spec_kind": "cron", "cron": "0 3 * * *"}
    schedule = {"name": "nightly", "execution_kind": "job", "spec": spec, "input": "canary"}
    assert (await owner.post("/v1/schedules", json=schedule)).status_code == 201
    caller = await called_as(Role.OPERATOR, hide_payloads=True)
    answers = [
        await caller.get(f"{path}/outcome"),
        await caller.get(path, params={"include": "outcome"}),
        await caller.post("/v1/outcomes", json={"execution_ids": [done.json()["execution_id"]]}),
        await caller.get("/v1/schedules"),
        await caller.get("/v1/schedules/nightly"),
        await caller.post("/v1/schedules/nightly/pause", json={}),
        await caller.post("/v1/schedules/nightly/resume", json={}),
        await caller.patch("/v1/schedules/nightly", json={"priority": 3}),
        await caller.post("/v1/schedules/diff", json={"definitions": [{**schedule, "input": 1}]}),
    ]
    assert [each.status_code for each in answers] == [*[200] * 8, 403]
    assert "canary" not in "".join(each.text for each in answers)
    kept = (await ff_engine.get_schedule("nightly")).definition
    assert (kept.input_payload, kept.priority) == (b'"canary"', 3)


async def test_a_worker_adds_missing_schedules_and_changes_none_and_a_client_does_neither(
    ff_engine: Engine, called_as: As
) -> None:
    spec = {"spec_kind": "cron", "cron": "0 3 * * *"}
    defined = {"name": "nightly", "execution_kind": "job", "spec": spec, "source": "code"}
    worker, caller = await called_as(Role.WORKER), await called_as(Role.CLIENT)
    sync = {"definitions": [defined], "missing_only": True}
    early = await caller.post("/v1/schedules/sync", json=sync)
    assert (early.status_code, early.json()["scope"]) == (403, "operate")
    made = await worker.post("/v1/schedules/sync", json=sync)
    assert (made.status_code, made.json()["missing"]) == (200, ["nightly"])
    for more in ({"prune": True}, {"missing_only": False}):
        refused = await worker.post("/v1/schedules/sync", json={**sync, "definitions": [], **more})
        assert (refused.status_code, refused.json()["scope"]) == (403, "operate")
    assert (await ff_engine.get_schedule("nightly")).definition.name == "nightly"


async def test_budgets_are_listed_for_readers_of_all_namespaces_alone(called_as: As) -> None:
    everywhere, shop = (
        await called_as(Role.READER),
        await called_as(Role.ADMIN, namespaces=["shop"]),
    )
    assert (await everywhere.get("/v1/budgets")).json()["items"] == []
    assert (await shop.get("/v1/budgets")).status_code == 403


async def test_a_text_that_no_token_can_be_is_not_looked_up(
    server: Application, called_as: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = (await called_as(Role.READER)).headers["authorization"]
    asked: list[bytes] = []

    async def find_token(digest: bytes) -> None:
        asked.append(digest)

    monkeypatch.setattr(server.services.engine, "find_token", find_token)
    typo = right[:20] + ("a" if right[20] != "a" else "b") + right[21:]
    for wrong in (typo, "Bearer x", "Bearer ", "Bearer \u00e9"):
        headers = {b"authorization": wrong.encode()}
        assert (await client(server).get("/v1/info", headers=headers)).status_code == 401
    assert asked == []
    assert (await client(server, authorization=right).get("/v1/info")).status_code == 401
    assert len(asked) == 1


async def test_the_audit_log_names_the_token_and_the_request(
    called_as: As, caplog: pytest.LogCaptureFixture
) -> None:
    caller = await called_as(Role.OPERATOR)
    made = await caller.post("/v1/executions", json={"execution_kind": "job"})
    request = {"x-request-id": "r-42"}
    await caller.post(made.headers["location"] + "/cancel", json={"reason": "x"}, headers=request)
    audited = [vars(each) for each in caplog.records if each.name == "flowfabric.audit"]
    [told] = [each for each in audited if each["event"] == "cancelled"]
    assert (told["event"], told["principal"], told["request_id"]) == (
        "cancelled",
        "operator",
        "r-42",
    )
