"""Every route, called by somebody who may, with what it takes."""

from __future__ import annotations

import os
import uuid
from base64 import b64encode
from collections.abc import Generator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from httpx import Response

from flowfabric.api.leaves import parse_execution_id
from flowfabric.api.packed_ids import pack_ids
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.ids import (
    ExecutionId,
    children_group_id,
    new_uuid,
    parse_uuid,
    uuid_partition,
)
from flowfabric.server.app import Application
from flowfabric.server.routes import ROUTES
from flowfabric.server.table import Kind
from flowfabric.states import Scope
from flowfabric.testing import Clock
from flowfabric.tokens import WaitpointToken
from flowfabric.worker.durable.waitpoints import HandlerWaitpoint
from tests.engine.controls import Another
from tests.engine.quotas import limited
from tests.server.conftest import Caller

WORKER = {"worker_id": "w", "worker_instance_id": "w-1"}
CALLED: set[str] = set()
"""The routes that have answered with success in the tests of this module."""
AUDITED: set[str] = set()
"""The controls that have changed something, each with one operator event of actor and reason."""
CONTROLS = {
    each.name: each
    for each in ROUTES
    if each.scope in (Scope.OPERATE, Scope.OPERATE_ALL, Scope.ADMIN) and each.method != "GET"
}
"""The routes by which operators change something."""
WHY = "asked for by the test"
RUN: set[str] = set()
"""The tests of this module that have run in this process."""
Part = tuple[set[str], set[str], set[str]]
TEMPLATES = sorted(((each.method, each.path.split("/"), each.name) for each in ROUTES), key=str)


def named(method: str, path: str) -> str:
    """The name of the route that such a request is for."""
    segments = path.split("/")
    found = [
        (sum(wanted.startswith("{") for wanted in template), name)
        for of, template, name in TEMPLATES
        if of == method
        and len(template) == len(segments)
        and all(
            wanted == found or wanted.startswith("{")
            for wanted, found in zip(template, segments, strict=True)
        )
    ]
    return min(found)[1]


def note(answer: Response) -> None:
    """The route of this answer was called."""
    CALLED.add(named(answer.request.method, answer.request.url.path))


def with_reason(name: str, given: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The request of a control with a reason in its body or its URL, and that reason."""
    control = CONTROLS.get(name)
    if control is None:
        return given, None
    for place, kind in (("json", control.body), ("params", control.query)):
        members = {each.name for each in msgspec.structs.fields(kind)} if kind else set[str]()
        if "reason" in members:
            told = {"reason": WHY, **(given.get(place) or {})}
            return {**given, place: told}, told.get("detail", told["reason"])
    raise AssertionError(f"{name} takes no reason")


class Story:
    """Calls routes one after the other; each must succeed."""

    def __init__(self, http: Caller, db: Connection, actor: str = "local") -> None:
        self._http, self._db, self._actor = http, db, actor

    async def get(self, path: str, status: int = 200, **query: Any) -> Any:
        return await self._told("GET", path, status, params=query)

    async def post(
        self, path: str, body: Any = None, status: int = 200, *, changes: bool = True
    ) -> Any:
        return await self._told("POST", path, status, changes=changes, json=body or {})

    async def put(self, path: str, body: Any, status: int = 200) -> Any:
        return await self._told("PUT", path, status, json=body)

    async def call(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        content = {} if body is None else {"json": body}
        return await self._told(method, path, status, **content)

    async def _told(
        self, method: str, path: str, status: int, *, changes: bool = True, **given: Any
    ) -> Any:
        name = named(method, path)
        given, why = with_reason(name, given)
        before = max([each["event_id"] for each in await self._events()], default=0)
        answer = await self._http.request(method, path, **given)
        assert answer.status_code == status, (answer.request.url, answer.text)
        note(answer)
        events = await self._events(after=before)
        if status >= 400 or (name in CONTROLS and not changes):
            assert events == [], (answer.request.url, "what changes nothing leaves no event")
        elif name in CONTROLS:
            of_flow = [each for each in events if each["event_type"] == "flow_replayed"]
            [event] = of_flow or events  # its members have events of their own
            assert (event["actor"], event["reason"]) == (self._actor, why), answer.request.url
            AUDITED.add(name)
        media = answer.headers.get("content-type", "")
        return answer.json() if media == "application/json" and answer.content else answer.content

    async def _events(self, after: int = 0) -> list[Any]:
        return await self._db.fetch("SELECT * FROM ff.operator_event WHERE event_id > $1", after)

    async def submitted(self, **members: Any) -> tuple[str, str]:
        """The id of a new execution, and its path."""
        made = await self.post("/v1/executions", {"execution_kind": "job", **members}, 201)
        return made["execution_id"], f"/v1/executions/{made['execution_id']}"

    async def claimed(self, **members: Any) -> dict[str, Any]:
        """What a worker holds: a new execution, with `id` and `path`."""
        execution_id, path = await self.submitted(**members)
        answer = await self.post("/v1/work/claim", {**WORKER, "limit": 10})
        [work] = answer["executions"]
        return {**work, "id": execution_id, "path": path}


@pytest.fixture
def story(http: Caller, db: Connection) -> Story:
    return Story(http, db)


@pytest.fixture(autouse=True)
def this_test_runs(request: pytest.FixtureRequest) -> None:
    RUN.add(request.function.__name__)


@pytest.fixture(scope="module", autouse=True)
def every_route_is_called(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[None]:
    """When all tests of the module have run, in this process and its siblings, none is left out."""
    yield
    place = tmp_path_factory.getbasetemp()
    place = place if os.environ.get("PYTEST_XDIST_WORKER") is None else place.parent
    written = place / f"routes-{os.getpid()}.part"
    written.write_bytes(msgspec.json.encode((RUN, CALLED, AUDITED)))
    written.rename(written.with_suffix(".json"))
    run, called, audited = set[str](), set[str](), set[str]()
    for part in place.glob("routes-*.json"):
        theirs = msgspec.json.decode(part.read_bytes(), type=Part)
        run, called, audited = run | theirs[0], called | theirs[1], audited | theirs[2]
    tests = {name for name in vars(request.module) if name.startswith("test_")}
    if run >= tests and not request.session.testsfailed:
        streams = {each.name for each in ROUTES if each.kind is Kind.STREAM}
        assert {each.name for each in ROUTES} - called - streams == set()
        assert CONTROLS.keys() - audited == set()


async def test_an_execution_is_submitted_claimed_and_completed(story: Story, http: Caller) -> None:
    execution_id, where = await story.submitted(input={"n": 2**70}, tags={"shop.tenant": "acme"})
    claimed = await story.post("/v1/work/claim", {**WORKER, "ttl": 30})
    [work] = claimed["executions"]
    assert work["input"] == {"n": 2**70}
    await story.post("/v1/work/progress", {"handle": work["handle"], "percent": 50}, 204)
    assert await story.post("/v1/work/renew", {"handles": [work["handle"]]}) == {
        "results": [{"result": "done"}]
    }
    done = await story.post(
        "/v1/work/complete",
        {"completions": [{"handle": work["handle"], "result": {"ok": True}}]},
    )
    assert done["results"] == [
        {"result": "completed", "execution_id": execution_id, "repeated": False}
    ]
    brief = {"completions": [{"handle": work["handle"], "result": {"ok": True}}], "brief": True}
    [repeated] = (await story.post("/v1/work/complete", brief))["results"]
    assert repeated["repeated"] is True
    await story.submitted()
    [other] = (await story.post("/v1/work/claim", WORKER))["executions"]
    brief = {"completions": [{"handle": other["handle"]}], "brief": True}
    said = {"results": [], "all_completed": True}
    assert await story.post("/v1/work/complete", brief) == said
    late = await story.post("/v1/work/renew", {"handles": [work["handle"]]})
    assert late["results"][0]["result"] == "refused"
    assert late["results"][0]["execution_id"] == execution_id
    outcome = await story.get(f"{where}/outcome", wait=1)
    assert (outcome["public_state"], outcome["result"]) == ("completed", {"ok": True})
    assert await http.get(f"{where}/result") is not None
    assert await story.get(f"{where}/input") == {"n": 2**70}
    assert await story.get(f"{where}/result") == {"ok": True}
    shown = await story.get(where, include="attempts,explanation,outcome,history")
    assert shown["attempts"][0]["outcome"] == "success"
    for path in ("state", "explanation", "attempts", "history", "journal", "eligibility"):
        await story.get(f"{where}/{path}")
    await story.get(f"{where}/upstream-results")
    assert (await story.get(f"{where}/tags/shop.tenant"))["value"] == "acme"
    both = await story.post("/v1/outcomes", {"execution_ids": [execution_id], "wait": 1})
    assert [each["execution_id"] for each in both["outcomes"]] == [execution_id]


async def test_a_key_submits_once_and_another_input_conflicts(http: Caller) -> None:
    body = {"execution_kind": "job", "input": 1}
    key = {"idempotency-key": "k-1"}
    first = await http.post("/v1/executions", json=body, headers=key)
    again = await http.post("/v1/executions", json={**body, "idempotency_key": "k-1"})
    other = await http.post("/v1/executions", json={**body, "input": 2}, headers=key)
    unequal = await http.post("/v1/executions", json={**body, "idempotency_key": "x"}, headers=key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == {"result": "duplicate", "execution_id": first.json()["execution_id"]}
    assert (other.status_code, other.json()["category"]) == (409, "conflict")
    assert unequal.status_code == 422


async def test_many_are_submitted_at_once_and_listed_page_by_page(
    story: Story, http: Caller
) -> None:
    many = [{"execution_kind": "job", "input": number} for number in range(3)]
    more = [ExecutionId.mint(), ExecutionId.mint()]
    ids = b64encode(pack_ids(more)).decode()
    alike = {
        "ids_base64": ids,
        "inputs_base64": [b64encode(each).decode() for each in (b"3", b"4")],
    }
    batch = {"executions": many, "alike": alike}
    answer = await story.post("/v1/executions/batch", batch)
    made = [each["execution_id"] for each in answer["results"]]
    assert made[3:] == [str(each) for each in more]
    inputs = [await story.get(f"/v1/executions/{each}/input") for each in made]
    assert inputs == [0, 1, 2, 3, 4]
    fresh = {
        "ids_base64": b64encode(pack_ids([ExecutionId.mint()])).decode(),
        "inputs_base64": [""],
    }
    brief = {"executions": [{"execution_kind": "brief"}], "alike": fresh, "brief": True}
    assert await story.post("/v1/executions/batch", brief) == {"results": [], "all_created": True}
    again = (await story.post("/v1/executions/batch", brief))["results"]
    assert [each["result"] for each in again] == ["created", "duplicate"]
    for wrong in ({**alike, "inputs_base64": []}, {**alike, "ids_base64": "eA=="}):
        await story.post("/v1/executions/batch", {**batch, "alike": wrong}, 422)
    first = await http.get("/v1/executions", params={"limit": 3, "kind": "job", "state": "waiting"})
    note(first)
    second = await http.get(first.headers["link"].partition(">")[0].removeprefix("<"))
    found = [each["execution_id"] for each in first.json()["items"] + second.json()["items"]]
    assert sorted(found) == sorted(made)
    assert second.json()["next_cursor"] is None
    assert "link" not in second.headers
    some = {"state": "failed,waiting", "kind": ["job", "x"], "sort": "old", "tag": "a.b=c,d"}
    assert (await story.get("/v1/executions", **some))["items"] == []
    some.pop("tag")
    assert len((await story.get("/v1/executions", **some))["items"]) == 5
    counted = await story.get("/v1/executions/count", state="waiting", at_most=4)
    assert counted == {"count": 4, "more": True}
    assert (await story.get("/v1/executions", key="k"))["items"] == []
    assert (await story.get("/v1/failures"))["groups"] == []
    assert (await story.get("/v1/activity", window=600, steps=5))["step"] == 120.0


async def test_many_are_changed_by_one_request_and_searches_are_saved(story: Story) -> None:
    execution_id, _ = await story.submitted(tags={"a.b": "x,y"})
    wanted = {"action": "cancel", "reason": "x", "filter": {"tag": ["a.b=x,y"], "kind": ["job"]}}
    preview = await story.post("/v1/bulk-actions", {**wanted, "preview": True}, changes=False)
    assert (preview["eligible"], len(preview["samples"])) == ({"waiting": 1}, 1)
    began = await story.post("/v1/bulk-actions", wanted, 201)
    path = f"/v1/bulk-actions/{began['bulk_id']}"
    assert (await story.get(path))["total"] == 1
    [listed] = (await story.get("/v1/bulk-actions"))["items"]
    assert listed["bulk_id"] == began["bulk_id"]
    [target] = (await story.get(f"{path}/executions"))["items"]
    assert target == {"execution_id": execution_id, "result": None}
    assert (await story.post(f"{path}/stop"))["state"] == "stopped"
    named = {"action": "tag", "reason": "x", "execution_ids": [execution_id]}
    tag = {"tag_key": "a.b", "tag_value": "z"}
    await story.post("/v1/bulk-actions", {**named, "arguments": tag}, 201)
    saved = await story.post("/v1/queries", {"name": "failed", "query": "state=failed"}, 201)
    assert (await story.get("/v1/queries"))["items"] == [saved]
    await story.call("DELETE", f"/v1/queries/{saved['query_id']}", status=204)


async def test_an_execution_is_controlled(story: Story, http: Caller) -> None:
    _, path = await story.submitted()
    await story.put(f"{path}/priority", {"priority": 7})
    await story.put(f"{path}/tags/shop.tenant", {"value": "acme"}, 204)
    await story.post(f"{path}/block", {"reason": "paused_by_operator", "detail": "x"})
    await story.post(f"{path}/unblock")
    seen = (await http.get(path)).headers["etag"]
    await story.post(f"{path}/cancel", {"reason": "x"})
    stale = await http.post(f"{path}/replay", json={}, headers={"if-match": seen})
    assert (stale.status_code, stale.json()["kind"]) == (412, "stale_view")
    await story.post(f"{path}/replay", {"from": "start"})
    await story.post("/v1/work/claim", WORKER)
    await story.post(f"{path}/complete", {"result": 42})
    assert await story.get(f"{path}/result") == 42
    _, later = await story.submitted(delay=600)
    assert (await story.post(f"{later}/wake"))["public_state"] == "waiting"
    await story.post(f"{later}/cancel")
    held = await story.claimed()
    await story.post(f"{held['path']}/fail", {"reason": "x"})
    held = await story.claimed()
    await story.post(f"{held['path']}/delay", {"delay": 60})
    held = await story.claimed()
    revoked = await story.post(f"{held['path']}/revoke-lease", {"reason": "x"})
    assert revoked["result"] == "lease_revoked"


async def test_a_worker_hands_work_back(story: Story) -> None:
    for path, body in (
        ("release", lambda handle: {"handles": [handle]}),
        ("delay", lambda handle: {"requests": [{"handle": handle, "delay": 60}]}),
        ("fail", lambda handle: {"failures": [{"handle": handle, "reason": "x"}]}),
        ("release-after-trouble", lambda handle: {"troubles": [{"handle": handle, "reason": "x"}]}),
    ):
        held = await story.claimed()
        [answer] = (await story.post(f"/v1/work/{path}", body(held["handle"])))["results"]
        assert answer["execution_id"] == held["id"], answer
        if path != "fail":
            await story.post(f"{held['path']}/cancel")
    nothing = await story.post("/v1/work/claim", {**WORKER, "wait": 0}, 204)
    counted = await story.post("/v1/work/count", {**WORKER, "lanes": ["default"], "within": 1})
    assert (nothing, counted["claimable"]) == (b"", 0)
    await story.post("/v1/work/claimed", {"lease_ids": [UUID], "worker_instance_id": "w-1"})


UUID = "0189d0c3-0000-7000-8000-000000000000"


async def test_whoever_gives_up_a_lease_lets_the_next_one_of_its_limit_go(
    story: Story, db: Connection
) -> None:
    await limited.limit(db, cap=1)
    ids = await limited.created(db, *"aaaa")
    given_up: list[str] = []

    for path, member, of_each in (
        ("fail", "failures", {"reason": "boom"}),
        ("delay", "requests", {"delay": 60}),
        ("complete", "completions", {}),
        ("complete", "completions", {}),
    ):
        [work] = (await story.post("/v1/work/claim", {**WORKER, "limit": 10}))["executions"]
        body = {member: [{"handle": work["handle"], **of_each}]}
        [done] = (await story.post(f"/v1/work/{path}", body))["results"]
        given_up.append(done["execution_id"])

    assert sorted(given_up) == sorted(map(str, ids))


async def test_a_submit_names_its_limit_its_budget_and_a_key_of_its_own(
    story: Story, http: Caller, db: Connection
) -> None:
    await story.post("/v1/budgets", {"budget_id": "agent", "hard_limits": {"tokens": 1}}, 201)
    await limited.limit(db, cap=1)
    options = {"limit": {"name": "per-customer", "key": "acme"}, "budget": ["agent"]}
    for _ in range(2):
        await story.submitted(**options)
    claimed = await story.post("/v1/work/claim", {**WORKER, "limit": 10})
    assert len(claimed["executions"]) == 1, "the limit holds the other one back"
    stored = await db.fetch("SELECT budget_ids FROM ff.exec_core")
    assert all(row["budget_ids"] for row in stored)

    body = {"execution_kind": "job", "unique": {"key": "one"}}
    first = await story.post("/v1/executions", body, 201)
    again = await story.post("/v1/executions", body, 200)
    assert (again["result"], again["execution_id"]) == ("duplicate", first["execution_id"])
    soon = {"execution_kind": "job", "debounce": {"key": "doc", "wait": 5.0}, "input": 1}
    put_off = await story.post("/v1/executions", soon, 201)
    later = await story.post("/v1/executions", {**soon, "input": 2}, 200)
    assert later["execution_id"] == put_off["execution_id"]
    for wrong in (
        {**body, "debounce": {"key": "x"}},
        {**body, "idempotency_key": "x"},
        {**soon, "delay": 1.0},
    ):
        assert (await http.post("/v1/executions", json=wrong)).status_code == 422
    batch = await http.post("/v1/executions/batch", json={"executions": [body]})
    assert batch.status_code == 422


async def test_a_flow_is_submitted_and_goes_on_when_a_member_completes(story: Story) -> None:
    made = await story.post(
        "/v1/flows",
        {
            "flow_kind": "release",
            "members": [
                {"execution_kind": "build", "member_name": "build"},
                {"execution_kind": "ship", "member_name": "ship"},
            ],
            "edges": [{"upstream": "build", "downstream": "ship"}],
            "policies": {"ship": {"type": "any_of"}},
        },
        201,
    )
    path = f"/v1/flows/{made['flow_id']}"
    assert [each["flow_id"] for each in (await story.get("/v1/flows"))["items"]] == [
        made["flow_id"]
    ]
    shown = await story.get(path)
    assert shown["edge_groups"][0]["policy"] == {
        "type": "any_of",
        "on_satisfied": "cancel_remaining",
    }
    members = (await story.get(f"{path}/members"))["items"]
    [edge] = (await story.get(f"{path}/edges"))["items"]
    await story.get(f"{path}/edges/{edge['edge_id']}")
    [build] = (await story.post("/v1/work/claim", WORKER))["executions"]
    await story.post("/v1/work/complete", {"completions": [{"handle": build["handle"]}]})
    [ship] = (await story.post("/v1/work/claim", WORKER))["executions"]
    assert ship["execution_kind"] == "ship"
    await story.put(f"{path}/tags/shop.tenant", {"value": "acme"}, 204)
    assert (await story.get(f"{path}/tags/shop.tenant"))["value"] == "acme"
    cancelled = await story.post(f"{path}/cancel", {"reason": "x", "wait": 1})
    assert cancelled["result"] == "flow_cancel_accepted"
    assert (await story.post(f"{path}/replay", {"preview": True}, changes=False))["preview"]
    assert (await story.post(f"{path}/replay"))["preview"] is False
    assert len(members) == 2


async def test_a_cancel_whose_members_do_not_end_in_time_is_accepted(
    story: Story, another: Another
) -> None:
    members = [{"execution_kind": "job", "member_name": each} for each in ("a", "b")]
    flow = (await story.post("/v1/flows", {"flow_kind": "f", "members": members}, 201))["flow_id"]
    path = f"/v1/flows/{flow}"
    first = (await story.get(f"{path}/members"))["items"][0]["execution_id"]
    holder = await another()
    async with holder.transaction():
        await lock_executions(holder, [ExecutionId.parse(first)])
        cancelled = await story.post(f"{path}/cancel", {"wait": 0.05}, 202)
    assert (cancelled["result"], cancelled["flow_id"]) == ("flow_already_cancelled", flow)
    assert first in cancelled["member_execution_ids"]


async def test_a_flow_is_built_piece_by_piece(story: Story) -> None:
    flow = await story.post("/v1/flows", {"flow_kind": "f", "flow_id": UUID}, 201)
    path = f"/v1/flows/{flow['flow_id']}"
    home = uuid_partition(parse_uuid(UUID, field="flow_id"))
    ids = [str(ExecutionId(home, new_uuid())) for _ in range(2)]
    for each in ids:
        await story.submitted(execution_id=each, hold=True, flow_id=None)
        await story.post(f"{path}/members", {"execution_id": each})
    revision = (await story.get(path))["graph_revision"]
    await story.put(f"{path}/groups/{ids[1]}", {"policy": {"type": "all_of"}})
    staged = await story.post(
        f"{path}/edges",
        {"upstream": ids[0], "downstream": ids[1], "expected_graph_revision": revision},
    )
    applied = await story.post(f"{path}/edges/{staged['edge_id']}/apply")
    assert applied["result"] == "edge_applied"


async def test_children_are_spawned_and_waited_for(story: Story) -> None:
    held = await story.claimed()
    parent = ExecutionId.parse(held["id"])
    group = str(children_group_id(parent, 0))
    child = str(ExecutionId(parent.partition_key, new_uuid()))
    body = {
        "handle": held["handle"],
        "children": [{"execution_id": child, "execution_kind": "child"}],
        "group": group,
        "policy": {"type": "all_of"},
    }
    spawned = await story.post("/v1/work/spawn-children", body)
    assert spawned["join"]["children"] == [child]
    await story.post("/v1/work/read-join", {"group": group})
    other = str(ExecutionId(parent.partition_key, new_uuid()))
    apart = str(children_group_id(parent, 1))
    await story.post(
        "/v1/work/spawn-apart",
        {
            "handle": held["handle"],
            "children": {apart: {"execution_id": other, "execution_kind": "child"}},
        },
        204,
    )
    window = await story.post(
        "/v1/work/read-window", {"handle": held["handle"], "groups": {apart: other}}
    )
    assert window["running"] == [other]
    waits = [{"handle": held["handle"], "groups": [group]}]
    [answer] = (await story.post("/v1/work/wait-children", {"waits": waits}))["results"]
    assert answer["result"] == "waiting_children"


async def test_a_durable_handler_journals_waits_and_is_signalled(story: Story) -> None:
    await story.post("/v1/keys/rotate", {"new_kid": "k1"})
    held = await story.claimed()
    lease, execution_id, path = {"handle": held["handle"]}, held["id"], held["path"]
    await story.post("/v1/work/wait-for-entries", lease)
    entry = {
        **lease,
        "seq": 1,
        "kind": "step",
        "state": "done",
        "name": "charge",
        "started_at": "2026-01-01T00:00:00Z",
        "value": 42,
    }
    assert await story.post("/v1/work/journal", {"entries": [entry]}) == {"refused": []}
    [read] = (await story.post("/v1/work/read-journal", {"execution_ids": [execution_id]}))["items"]
    assert read["journal"]["entries"][0]["value"] == 42
    [step] = (await story.get(f"{path}/journal", values=True))["items"]
    assert step["value"] == 42
    frame = {"payload": {"pct": 10}, "frame_type": "progress"}
    appended = await story.post("/v1/work/frames", {"appends": [{**lease, "frames": [frame]}]})
    assert appended["results"][0]["result"] == "frames_appended", appended
    frames = await story.get(f"{path}/attempts/0/frames")
    assert [each["payload"] for each in frames["items"]] == [{"pct": 10}]
    waitpoint = await story.post(
        "/v1/work/waitpoints", {**lease, "waitpoint_key": "approval", "expires_in": 600}
    )
    ids = {"waitpoint_ids": [waitpoint["waitpoint_id"]]}
    await story.post("/v1/work/read-waitpoints", {"execution_id": execution_id, **ids})
    await story.post("/v1/work/signals", lease)
    at = f"{path}/waitpoints/{waitpoint['waitpoint_id']}"
    [listed] = (await story.get(f"{path}/waitpoints"))["items"]
    assert "token" not in listed
    await story.get("/v1/waitpoints")
    token = (await story.get(f"{at}/token"))["waitpoint_token"]
    assert token == waitpoint["token"]
    delivered = await story.post(
        f"{at}/signals", {"waitpoint_token": token, "signal_name": "approved", "payload": 1}
    )
    assert delivered["result"] == "signal_accepted"
    await story.post(f"{at}/answer", {"signal_name": "approved", "idempotency_suffix": "1"})
    sent = await story.post(f"{path}/signals", {"signal_name": "go", "idempotency_key": "s"})
    [again] = (
        await story.post(
            "/v1/signals",
            {
                "signals": [
                    {"execution_id": execution_id, "signal_name": "go", "idempotency_key": "s"}
                ]
            },
        )
    )["results"]
    assert again == {"result": "signal_duplicate", "existing_signal_id": sent["signal_id"]}
    waiting = {"execution_ids": [execution_id]}
    [inbox] = (await story.post("/v1/work/read-inbox", waiting))["items"]
    assert [each["signal_name"] for each in inbox["inbox"]["signals"]] == ["go"]
    sent_to = (await story.get(f"{path}/signals"))["items"]
    assert "go" in [each["signal_name"] for each in sent_to]
    assert (await story.get("/v1/reviews"))["items"] == []
    await story.post("/v1/work/read-wait", waiting)
    closed = await story.post(f"{at}/close")
    assert (closed["repeated"], closed["resumed"]) == (False, False)
    again = await story.post(f"{at}/close", changes=False)
    assert (again["repeated"], again["close_reason"]) == (True, closed["close_reason"])
    late = {"waitpoint_token": token, "signal_name": "approved"}
    await story.post(f"{at}/signals", late, 409)
    await story.post(f"{path}/waitpoints/{uuid.uuid4()}/close", None, 404)
    await story.post("/v1/work/close-waitpoints", {"execution_id": execution_id, **ids})
    suspended = await story.post(
        "/v1/work/suspend",
        {
            "requests": [
                {
                    **lease,
                    "bindings": [{"type": "fresh", "waitpoint_key": "later"}],
                    "condition": {
                        "Single": {"waitpoint_key": "later", "matcher": {"ByName": "go"}}
                    },
                    "timeout_at": "2099-01-01T00:00:00Z",
                }
            ]
        },
    )
    assert suspended["results"][0]["result"] == "suspended", suspended
    await story.post(f"{path}/resume", {"reason": "x"})


async def test_a_handler_restarts_compensates_and_keeps_a_state(story: Story) -> None:
    held = await story.claimed()
    lease = {"handle": held["handle"]}
    entry = {
        **lease,
        "seq": 1,
        "kind": "compensation",
        "state": "done",
        "name": "undo",
        "started_at": "2026-01-01T00:00:00Z",
    }
    call = {"execution_kind": "undo", "payload": {"order": 1}}
    await story.post("/v1/work/arm-compensation", {"entry": entry, "call": call}, 204)
    await story.post(
        "/v1/work/disarm-compensations", {"entry": {**entry, "seq": 2, "name": "ok"}}, 204
    )
    state = {"payload": {"n": 1}, "mode": "summary"}
    await story.post("/v1/work/frames", {"appends": [{**lease, "frames": [state]}]})
    assert (await story.get(f"{held['path']}/attempts/0/summary"))["document"] == {"n": 1}
    assert (await story.get(f"{held['path']}/summary"))["document"] == {"n": 1}
    restarted = await story.post("/v1/work/restart", {**lease, "input": {"n": 2}})
    assert restarted["generation"] == 1


async def test_grants_reserve_an_execution_for_a_worker(story: Story) -> None:
    await story.post("/v1/keys/rotate", {"new_kid": "k1"})
    _, path = await story.submitted()
    grant = await story.post("/v1/grants", {**WORKER, "lane_id": "default"})
    await story.post("/v1/grants/verify", {"grant": {"type": "claim_grant", **grant}})
    claimed = await story.post(f"{path}/claim", {**WORKER, "expected_attempt_index": 0})
    assert claimed["handle"]
    refused = await story.post(f"{path}/reclaim-grant", {**WORKER, "lane_id": "default"})
    assert refused["result"] == "not_reclaimable"
    lost = await story.post(f"{path}/reclaim", WORKER)
    assert lost["result"] in ("grant_not_found", "not_reclaimable")
    await story.get("/v1/leases/expired")
    await story.post("/v1/work/release", {"handles": [claimed["handle"]]})
    await story.post("/v1/grants", {**WORKER, "lane_id": "default"})
    await story.post(f"{path}/claim-resumed", WORKER)


async def test_lanes_and_workers_are_registered_and_listed(story: Story, clock: Clock) -> None:
    await story.post("/v1/lanes", {"lanes": ["gpu"]}, 204)
    await story.put("/v1/lanes/gpu/state", {"lane_state": "paused", "reason": "x"})
    await story.put("/v1/lanes/gpu/retention", {"retention": 60}, 204)
    [lane] = (await story.get("/v1/lanes"))["items"]
    assert await story.get("/v1/lanes/gpu") == lane
    assert (lane["lane_state"], lane["retention"]) == ("paused", 60.0)
    trim = {"retention": 60, "preview": True}
    assert await story.post("/v1/lanes/gpu/trim", trim, changes=False) == {
        "executions": 0,
        "preview": True,
    }
    _, ended = await story.submitted(lane_id="gpu")
    await story.post(f"{ended}/cancel")
    await clock.advance(timedelta(minutes=2))
    deleted = await story.post("/v1/lanes/gpu/trim", {**trim, "preview": False})
    assert deleted == {"executions": 1, "preview": False}
    body = {**WORKER, "lanes": ["gpu"], "kinds": ["job"]}
    assert (await story.post("/v1/workers", body))["result"] == "worker_registered"
    await story.post("/v1/workers/w-1/heartbeat")
    [worker] = (await story.get("/v1/workers"))["items"]
    assert worker["liveness_ttl"] == 60.0
    kinds = {"kinds": [["job", "gpu"], ["other", "gpu"]]}
    unserved = await story.post("/v1/unserved", kinds)
    assert [each["execution_kind"] for each in unserved["items"]] == ["other"]
    await story.submitted(lane_id="gpu", execution_kind="other")
    [route] = (await story.get("/v1/unserved"))["items"]
    assert (route["execution_kind"], route["waiting"]) == ("other", 1)
    await story.post("/v1/workers/w-1/dead", {"reason": "x"})
    families = {"family": ["operator", "lease"], "lane": "gpu", "type": "lane_state_changed"}
    [event] = (await story.get("/v1/events", **families))["items"]
    assert event["details"]["lane_id"] == "gpu"
    events = await story.get("/v1/workers/events")
    assert {each["event_kind"] for each in events["items"]} == {
        "registered",
        "heartbeat",
        "marked_dead",
    }


async def test_a_schedule_lives_from_creation_to_deletion(story: Story, http: Caller) -> None:
    body = {
        "name": "nightly",
        "execution_kind": "report",
        "spec": {"spec_kind": "cron", "cron": "0 3 * * *"},
        "input": {"a": 1},
    }
    made = await story.post("/v1/schedules", body, 201)
    assert made["definition"]["input"] == {"a": 1}
    path = "/v1/schedules/nightly"
    await story.get(path)
    changed = await story.call("PATCH", path, {"priority": 5})
    assert (changed["definition"]["priority"], changed["definition"]["input"]) == (5, {"a": 1})
    stale = await http.patch(path, json={"priority": 6}, headers={"if-match": '"1"'})
    assert stale.status_code == 412
    await story.post(f"{path}/pause", {"reason": "x"})
    await story.post(f"{path}/resume")
    assert (await story.post(f"{path}/trigger"))["outcome"] == "triggered"
    window = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T12:00:00Z"}
    assert len((await story.post(f"{path}/backfill", window))["executions"]) == 2
    await story.get(f"{path}/history")
    assert len((await story.get(f"{path}/preview", count=3))["items"]) == 3
    await story.get(f"{path}/explanation")
    assert len((await story.get("/v1/schedules"))["items"]) == 1
    await story.call("DELETE", path, status=204)


async def test_events_keys_tokens_and_the_server_tell_about_themselves(
    story: Story, http: Caller, db: Connection
) -> None:
    _, path = await story.submitted()
    await story.post(f"{path}/cancel")
    listed = await story.get("/v1/events", family="operator", limit=1)
    assert listed["items"][0]["result"] == "operator_event"
    await story.post("/v1/keys/rotate", {"new_kid": "k1"})
    assert (await story.get("/v1/keys"))["current_kid"] == "k1"
    assert (await story.get("/v1/keys/waitpoints"))["items"] == []
    assert "exec_core" in [each["table_name"] for each in (await story.get("/v1/tables"))["items"]]
    for probe in ("/livez", "/healthz", "/readyz", "/v1/info", "/v1/doctor", "/v1/whoami"):
        await story.get(probe)
    assert b"ff_http_requests_total" in await story.get("/metrics")
    assert (await story.get("/openapi.json"))["openapi"] == "3.1.0"
    page = await http.get("/docs")
    note(page)
    assert "script-src 'self'" in page.headers["content-security-policy"]
    await story.get("/docs/swagger-ui.css")
    made = await story.post("/v1/tokens", {"label": "x", "role": "admin"}, 201)
    as_admin = {"authorization": f"Bearer {made['token']}"}
    tokens = await http.get("/v1/tokens", headers=as_admin)
    note(tokens)
    assert made["token"] not in tokens.text
    http.headers.update(as_admin)
    gone = await Story(http, db, actor="x").call("DELETE", f"/v1/tokens/{made['token_id']}")
    assert gone["label"] == "x"


async def test_a_callback_answers_a_waitpoint_with_its_token_alone(
    story: Story, http: Caller, server: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    await story.post("/v1/keys/rotate", {"new_kid": "k1"})
    held = await story.claimed()
    made = await story.post(
        "/v1/work/waitpoints",
        {"handle": held["handle"], "waitpoint_key": "bank", "expires_in": 600},
    )
    path = f"/v1/callbacks/{held['id']}/{made['waitpoint_id']}"
    off = await http.post(path, json=1, params={"token": made["token"]})
    settings = server.services.settings
    server.services.settings = msgspec.structs.replace(settings, callbacks=True)
    token = {"authorization": f"Waitpoint {made['token']}"}
    asked = await http.post(f"{path}/question", headers=token)
    note(asked)
    guessed = await http.post(f"{path}/question", params={"token": "k1:" + "0" * 64})
    taken = await http.post(f"{path}?signal=paid", json={"ok": True}, headers=token)
    note(taken)
    door = HandlerWaitpoint(
        "bank",
        parse_execution_id(held["id"]),
        uuid.UUID(made["waitpoint_id"]),
        "bank",
        WaitpointToken(made["token"]),
    )
    assert door.url is None
    monkeypatch.setenv("FF_CALLBACK_URL", "https://ff.example.org/")
    assert made["token"] not in repr(door)
    where = (door.url or "").removeprefix("https://ff.example.org")
    by_url = await http.post(f"{where}&signal=paid", json={"ok": True})
    forged = await http.post(path, json=1, params={"token": "k1:" + "0" * 64})
    nowhere = await http.post(
        f"/v1/callbacks/{held['id'][:-4]}0000/{UUID}", json=1, params={"token": made["token"]}
    )
    many = [await http.post(path, json=1, params={"token": "x"}) for _ in range(20)]
    assert (off.status_code, off.json()["kind"]) == (404, "route_not_found")
    assert (asked.json()["waitpoint_key"], asked.json()["open"]) == ("bank", True)
    assert (guessed.status_code, guessed.json()["kind"]) == (400, "invalid_token")
    assert taken.json()["result"] == "signal_accepted", taken.text
    assert by_url.json()["result"] == "signal_accepted", by_url.text
    assert {forged.json()["kind"], nowhere.json()["kind"]} == {"invalid_token"}
    assert many[-1].status_code == 429
    assert made["token"] not in forged.text + nowhere.text + off.text


async def test_budgets_and_limits_are_kept(story: Story) -> None:
    made = await story.post(
        "/v1/budgets", {"hard_limits": {"tokens": 100}, "soft_limits": {"tokens": 80}}, 201
    )
    path = f"/v1/budgets/{made['budget_id']}"
    held = await story.claimed()
    used = {"handle": held["handle"], "dimensions": {"tokens": 10}}
    assert (await story.post(f"{path}/usage", used))["result"] == "usage_counted"
    lost = {**used, "handle": (await story.claimed())["handle"], "budget_id": "no budget\n"}
    reports = {"reports": [{**used, "budget_id": made["budget_id"], "dedup_key": "d"}, lost]}
    both = (await story.post("/v1/work/usage", reports))["results"]
    assert [each["result"] for each in both] == ["usage_counted", "refused"]
    spent = {"execution_id": held["id"], "deltas": {"tokens": 5}, "idempotency_key": "s"}
    await story.post(f"{path}/spend", spent)
    assert (await story.get(path))["usage"] == {"tokens": 25}
    await story.call("PATCH", path, {"hard_limits": {"tokens": 200}})
    released = await story.post(f"{path}/release", {"execution_id": held["id"]})
    assert released["released"] == {"tokens": 5}
    await story.post(f"{path}/spend", {**spent, "idempotency_key": "t"})
    given_back = await story.post(f"{path}/give-back", {"execution_id": held["id"]})
    assert given_back["released"] == {"tokens": 5}
    await story.post(f"{path}/reset")
    assert len((await story.get("/v1/budgets"))["items"]) == 1
    assert isinstance((await story.get(f"{path}/spend"))["items"], list)
    warns = {"budget_id": "calls", "soft_limits": {"calls": 5}, "on_soft_limit": "page"}
    await story.post("/v1/budgets", warns, 201)
    found = await story.get("/v1/budgets/calls")
    assert found["scope_id"] == "calls"
    assert (found["soft_limits"], found["on_soft_limit"]) == ({"calls": 5}, "page")
    limit = {"name": "bank", "limits": {"max_concurrent": 2}}
    assert (await story.post("/v1/quotas", limit, 201))["created"]
    assert (await story.get("/v1/quotas/bank"))["limits"]["max_concurrent"] == 2
    await story.call("PATCH", "/v1/quotas/bank", {"limits": {"max_concurrent": 3}})
    assert len((await story.get("/v1/quotas"))["items"]) == 1
    assert (await story.get("/v1/quotas/bank/keys"))["items"] == []


async def test_what_clients_and_workers_of_ours_ask_beside(story: Story) -> None:
    one, path = await story.submitted(idempotency_key="k")
    found = await story.get("/v1/executions/by-key", idempotency_key="k")
    assert found == {"execution_id": one}
    assert await story.get(f"{path}/compensation") == {"compensation": None}
    keyed = {"execution_kind": "job", "idempotency_key": "u", "unique_until": "ended"}
    made = await story.post("/v1/executions/unique", {"executions": [keyed]})
    assert [each["result"] for each in made["results"]] == ["created"]
    put_off = {"execution_kind": "job", "idempotency_key": "d"}
    soon = await story.post("/v1/executions/debounced", {"execution": put_off, "wait": 60.0})
    assert soon["result"] == "created"
    flow = await story.post("/v1/flows", {"flow_kind": "f"}, 201)
    asked = {"flow_ids": [flow["flow_id"], UUID]}
    assert [
        each["flow_id"] for each in (await story.post("/v1/flows/outcomes", asked))["items"]
    ] == [flow["flow_id"]]
    work = (await story.post("/v1/work/claim", {**WORKER, "limit": 10}))["executions"]
    handles = {"handles": [each["handle"] for each in work]}
    lost = await story.post("/v1/work/lost-leases", handles)
    assert lost["results"] == [{"result": "done"}] * 2
    fields = {"execution_id": one, "names": ["priority"]}
    assert (await story.post("/v1/work/fields", fields))["fields"] == {"priority": "0"}
    assert await story.post("/v1/work/watch", {"worker_instance_id": "w-1"}) == {"signalled": False}
    assert await story.post("/v1/work/due") == {"more": False}
    cancels = [{"handle": each["handle"], "reason": "x"} for each in work]
    ended = await story.post("/v1/work/cancel", {"cancellations": cancels})
    assert {each["public_state"] for each in ended["results"]} == {"cancelled"}
    await story.post("/v1/workers", {**WORKER, "lanes": ["default"]})
    assert (await story.post("/v1/workers/w-1/stopped"))["result"] == "worker_marked_dead"


async def test_definitions_of_applications_are_compared_and_stored(story: Story) -> None:
    spec = {"spec_kind": "cron", "cron": "0 3 * * *"}
    defined = {"name": "nightly", "execution_kind": "job", "spec": spec, "source": "code"}
    assert (await story.post("/v1/schedules/diff", {"definitions": [defined]}))["missing"]
    await story.post("/v1/schedules/sync", {"definitions": [defined]})
    changed = {"definition": {**defined, "priority": 3}, "revision": 1}
    assert (await story.put("/v1/schedules/nightly", changed))["definition"]["priority"] == 3
    await story.post("/v1/quotas", {"name": "bank", "limits": {"max_concurrent": 1}}, 201)
    one, _ = await story.submitted()
    admitted = await story.post("/v1/quotas/bank/admit", {"execution_id": one})
    assert admitted["outcome"] == "admitted"
    await story.post("/v1/quotas/bank/release", {"execution_id": one}, 204)
    await story.call("DELETE", "/v1/quotas/bank", status=204)
    budget = await story.post("/v1/budgets", {"hard_limits": {"usd": 5}}, 201)
    report = {"dimensions": ["usd"], "deltas": [2]}
    counted = await story.post(f"/v1/budgets/{budget['budget_id']}/report", report)
    assert counted["result"] == "usage_counted"
