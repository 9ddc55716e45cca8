"""A change that names the version it was meant for is not made to another version."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

from flowfabric.server.routes import ROUTES
from tests.server.conftest import Caller

FLOW = f"/v1/flows/{uuid4()}"


async def given(http: Caller) -> None:
    """What the changes of the table are made to."""
    for path, body in (
        ("/v1/lanes", {"lanes": ["bulk"]}),
        ("/v1/flows", {"flow_id": FLOW.rpartition("/")[2], "flow_kind": "order"}),
        ("/v1/budgets", {"budget_id": "calls", "hard_limits": {"calls": 5}}),
    ):
        answer = await http.post(path, json=body)
        assert answer.status_code in (201, 204), answer.text


CHANGES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("/v1/lanes/bulk", "PUT", "/state", {"lane_state": "paused"}),
    ("/v1/lanes/bulk", "PUT", "/retention", {"retention": 60}),
    ("/v1/budgets/calls", "PATCH", "", {"hard_limits": {"calls": 6}}),
    ("/v1/budgets/calls", "POST", "/reset", {}),
    (FLOW, "PUT", "/tags/shop.tenant", {"value": "acme"}),
    (FLOW, "POST", "/cancel", {"policy": "cancel_flow_only"}),
]


async def test_a_change_of_another_version_than_was_seen_is_refused(
    http: Caller, clock: Any
) -> None:
    await given(http)
    for path, method, control, body in CHANGES:
        await clock.advance(timedelta(seconds=1))
        seen = (await http.get(path)).headers["etag"]
        unchanged = await http.get(path, headers={"if-none-match": f'"other", {seen}'})
        assert (unchanged.status_code, unchanged.content) == (304, b"")

        first = await http.request(method, path + control, json=body, headers={"if-match": seen})
        await clock.advance(timedelta(seconds=1))
        again = await http.request(method, path + control, json=body, headers={"if-match": seen})

        assert first.status_code in (200, 204), (path, control, first.text)
        assert (again.status_code, again.json()["kind"]) == (412, "stale_view"), (path, control)
        assert (await http.get(path)).headers["etag"] != seen
    for etag in ('"~"', "seen", '"zz.1"'):
        refused = await http.post(f"{FLOW}/replay", json={}, headers={"if-match": etag})
        assert (refused.status_code, refused.json()["kind"]) == (412, "stale_view"), etag


async def test_a_flow_whose_members_went_on_has_another_version_and_is_replayed_once(
    http: Caller, clock: Any
) -> None:
    members = [{"execution_kind": "job"}]
    made = await http.post("/v1/flows", json={"flow_kind": "order", "members": members})
    path = made.headers["location"]
    waiting = (await http.get(path)).headers["etag"]
    worker = {"worker_id": "w", "worker_instance_id": "w-1"}
    [work] = (await http.post("/v1/work/claim", json=worker)).json()["executions"]
    running = await http.get(path, headers={"if-none-match": waiting})
    failure = {"handle": work["handle"], "reason": "x", "category": "bad_input"}
    await http.post("/v1/work/fail", json={"failures": [failure]})
    seen = (await http.get(path)).headers["etag"]
    answers: list[int] = []
    for _ in range(2):
        await clock.advance(timedelta(seconds=1))
        replayed = await http.post(f"{path}/replay", json={}, headers={"if-match": seen})
        answers.append(replayed.status_code)

    assert (running.status_code, answers) == (200, [200, 412])


async def test_a_change_that_compares_no_version_refuses_to_be_given_one(http: Caller) -> None:
    for each in ROUTES:
        if each.method == "GET" or each.if_match or each.path.startswith("/v1/callbacks"):
            continue
        path = each.path.replace("{", "").replace("}", "")
        answer = await http.request(each.method, path, headers={"if-match": '"1.2"'})
        assert answer.status_code == 422, (each.path, answer.text)
        assert answer.json()["errors"][0]["field"] == "If-Match"
