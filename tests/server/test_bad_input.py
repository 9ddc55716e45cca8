"""Bad input: refused with a problem that names the field, and nothing is written."""

import json
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest

from flowfabric import Engine
from flowfabric.server.app import Application
from flowfabric.server.limits import Meter, RequestLimits
from flowfabric.server.routes import ROUTES
from flowfabric.states import Scope
from tests.server.conftest import Caller
from tests.server.test_access import GUARDED, url

JSON = {"content-type": "application/json"}


def submit(**members: Any) -> dict[str, Any]:
    return {"execution_kind": "job", **members}


NESTED = "[" * 65 + "]" * 65
BAD: list[tuple[str, Any, int, str]] = [
    ("not JSON", b"{", 400, ""),
    ("not UTF-8", b'{"execution_kind":"\xff"}', 400, ""),
    ("a lone surrogate", b'{"execution_kind":"\\ud800"}', 422, "execution_kind"),
    ("a NUL", b'{"execution_kind":"a\\u0000b"}', 422, "execution_kind"),
    ("a NUL in a tag", b'{"execution_kind":"a","tags":{"a.b":"\\u0000"}}', 422, "tags.a.b"),
    ("a list", b"[]", 422, ""),
    ("too deep", f'{{"execution_kind":"job","input":{NESTED}}}'.encode(), 422, ""),
    ("absurdly deep", b"[" * 100_000, 422, ""),
    ("an unknown member", submit(idempotencykey="k"), 422, "idempotencykey"),
    ("a missing member", {}, 422, "execution_kind"),
    ("a wrong type", submit(priority="high"), 422, "priority"),
    (
        "a wrong type inside",
        submit(policy={"retry_policy": {"max_retries": "x"}}),
        422,
        "policy.retry_policy.max_retries",
    ),
    ("an id that is none", submit(execution_id="42"), 422, "execution_id"),
    ("an instant without offset", submit(delay_until="2026-01-01T00:00:00"), 422, "delay_until"),
    ("both forms of an input", submit(input=1, input_base64="eA=="), 422, "input"),
    ("no base64", submit(input_base64="!"), 422, "input_base64"),
    ("an empty kind", submit(execution_kind=""), 422, "execution_kind"),
    ("a huge number", b'{"execution_kind":"a","priority":1e400}', 422, "priority"),
    ("a kind that is too long", submit(execution_kind="x" * 300), 422, "execution_kind"),
    ("a bad tag", submit(tags={"nodot": "x"}), 422, "tag key"),
]


@pytest.mark.parametrize("way", ["one", "batch"])
async def test_a_bad_execution_is_refused_by_its_field(
    http: Caller, ff_engine: Engine, way: str
) -> None:
    wrong: list[Any] = []
    for name, body, status, field in BAD:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        path, expected = "/v1/executions", field
        if way == "batch":
            if status == 400 or not content.startswith(b"{"):
                continue
            content = b'{"executions":[' + content + b"]}"
            path = "/v1/executions/batch"
        answer = await http.post(path, content=content, headers=JSON)
        problem = answer.json()
        fields = [each["field"] for each in problem.get("errors", [])]
        named = not expected or any(each.endswith(expected) for each in fields)
        if answer.status_code != status or not named or problem["status"] != status:
            wrong.append((name, answer.status_code, fields, answer.text[:300]))
    assert wrong == []
    assert (await http.get("/v1/executions")).json()["items"] == []


async def test_bodies_have_a_size_and_a_content_type(http: Caller, server: Application) -> None:
    exactly = submit(input="")
    exactly["input"] = "x" * (1024 * 1024 - len(json.dumps(exactly)))

    async def parts() -> AsyncGenerator[bytes]:
        for _ in range(20):
            yield b" " * 65536

    text = json.dumps(exactly).encode()
    largest = await http.post("/v1/executions", content=text, headers=JSON)
    declared = await http.post("/v1/executions", content=text + b" ", headers=JSON)
    streamed = await http.post("/v1/executions", content=parts(), headers=JSON)
    formed = await http.post("/v1/executions", data={"a": "b"})
    bare = await http.post("/v1/executions", content=b"{}", headers={"content-type": ""})
    assert (len(text), largest.status_code) == (1024 * 1024, 201)
    assert [declared.status_code, streamed.status_code] == [413, 413]
    assert declared.json()["limit_bytes"] == 1024 * 1024
    assert [formed.status_code, bare.status_code] == [415, 415]


async def test_every_route_refuses_what_it_does_not_take(http: Caller) -> None:
    wrong: list[Any] = []
    for route in GUARDED:
        path = url(route)
        answers: list[tuple[Any, int]] = []
        answers.append((await http.request(route.method, path + "?no_such=1"), 422))
        if route.body is not None:
            for content, status in ((b"{", 400), (b'{"no_such":1}', 422), (b'"x"', 422)):
                sent = await http.request(route.method, path, content=content, headers=JSON)
                answers.append((sent, status))
            large = b'{"x":"' + b"x" * route.limit.size + b'"}'
            answers.append(
                (await http.request(route.method, path, content=large, headers=JSON), 413)
            )
        wrong += [
            (route.method, route.path, answer.status_code, status, answer.text[:200])
            for answer, status in answers
            if answer.status_code != status
            or answer.headers["content-type"] != "application/problem+json"
        ]
    assert wrong == []


async def test_ids_names_and_numbers_of_paths_and_queries_are_checked(http: Caller) -> None:
    x = (await http.post("/v1/executions", json=submit())).headers["location"]
    asked = {
        "/v1/executions/42": 422,
        "/v1/executions/%7Bfp:999%7D:0189d0c3-0000-7000-8000-000000000000": 422,
        "/v1/executions/86.0189d0c3-0000-7000-8000-000000000000": 404,
        "/v1/flows/x": 422,
        f"{x}/attempts/x/frames": 422,
        f"{x}/tags/a%00b": 422,
        "/v1/executions?limit=0": 422,
        "/v1/executions?limit=1001": 422,
        "/v1/executions?limit=x": 422,
        "/v1/executions?state=nope": 422,
        "/v1/executions?tag=x": 422,
        "/v1/executions?kind=%00": 422,
        "/v1/executions?kind=%ff": 422,
        "/v1/executions?lane=a&lane=b": 422,
        "/v1/executions?cursor=%F0%9F%92%A9": 422,
        "/v1/executions?since=2026-01-01T00:00:00": 422,
        "/v1/flows?cursor=x": 422,
        "/v1/workers?namespace=": 422,
        "/v1/events?cursor=zz": 422,
        "/v1/events/live?cursor=zz": 422,
        "/v1/leases/expired?cursor=zz": 422,
        f"{x}/outcome?wait=31": 422,
        f"{x}/history?cursor=zz": 422,
        "/v1/executions/": 404,
        "/v1/": 404,
        "/nowhere": 404,
        "/v1/executions?" + "x" * 9000: 414,
    }
    wrong = {
        path: (answer.status_code, status, answer.text[:200])
        for path, status in asked.items()
        if (answer := await http.get(path)).status_code != status
    }
    assert wrong == {}
    deleted = await http.delete("/v1/executions")
    assert (deleted.status_code, deleted.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST")
    assert (await http.options("/v1/executions")).status_code == 204
    assert (await http.get("/v1/info", headers={"accept": "image/png"})).status_code == 406


async def test_numbers_that_no_duration_has_are_refused_by_their_field(http: Caller) -> None:
    spec = {"spec_kind": "interval", "every": 1e300}
    body = {"name": "n", "execution_kind": "job", "spec": spec}
    refused = await http.post("/v1/schedules", json=body)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "every")


async def test_an_input_of_no_bytes_is_not_called_json(http: Caller) -> None:
    made = await http.post("/v1/executions", json=submit())
    answer = await http.get(made.headers["location"] + "/input")
    unknown = await http.get("/v1/executions/86.0189d0c3-0000-7000-8000-000000000000/input")
    assert answer.content == b""
    assert answer.headers["content-type"] == "application/octet-stream"
    assert unknown.status_code == 404


async def test_names_beyond_latin_1_are_encoded_in_headers(http: Caller) -> None:
    body = {"execution_kind": "job", "input_base64": "eA==", "encoding": "кодек 100%"}
    made = await http.post("/v1/executions", json=body)
    answer = await http.get(made.headers["location"] + "/input")
    told = answer.headers["x-ff-encoding"]
    assert (answer.status_code, unquote(told)) == (200, "кодек 100%")
    spec = {"spec_kind": "cron", "cron": "@daily"}
    schedule = {"name": "ночь / day", "execution_kind": "job", "spec": spec}
    made = await http.post("/v1/schedules", json=schedule)
    assert made.status_code == 201
    assert unquote(made.headers["location"]) == "/v1/schedules/ночь / day"


async def test_an_answer_to_a_listed_origin_varies_by_it_also_if_it_is_compressed(
    http: Caller, server: Application
) -> None:
    settings = msgspec.structs.replace(
        server.services.settings, cors_origins=("https://shop.example",)
    )
    server.services.settings = settings
    page = await http.get("/openapi.json", headers={"origin": "https://shop.example"})
    assert page.headers["content-encoding"] == "gzip"
    assert page.headers["vary"] == "origin, accept-encoding"


async def test_a_process_lives_also_while_nobody_may_ask_more(
    http: Caller, server: Application
) -> None:
    server.services.meter = Meter(RequestLimits(rate=0.001, burst=1))
    await http.get("/healthz")
    answers = [(await http.get(path)).status_code for path in ("/healthz", "/livez", "/livez")]
    assert answers == [429, 200, 200]


async def test_too_many_requests_are_refused_and_told_when_to_come_again(
    http: Caller, server: Application
) -> None:
    server.services.meter = Meter(RequestLimits(rate=0.001, burst=2))
    answers = [await http.get("/v1/info") for _ in range(3)]
    assert [each.status_code for each in answers] == [200, 200, 429]
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert answers[-1].json()["retryable"]


async def test_message_pack_goes_both_ways(http: Caller) -> None:
    headers = {"content-type": "application/msgpack", "accept": "application/msgpack"}
    body = msgspec.msgpack.encode(
        {"execution_kind": "job", "input_base64": b"\x00\xff", "encoding": "raw"}
    )
    made = await http.post("/v1/executions", content=body, headers=headers)
    plain = msgspec.msgpack.encode({"execution_kind": "job", "input": {"n": [1, None]}})
    await http.post("/v1/executions", content=plain, headers=headers)
    claim = msgspec.msgpack.encode({"worker_id": "w", "worker_instance_id": "w", "limit": 2})
    claimed = await http.post("/v1/work/claim", content=claim, headers=headers)
    found = msgspec.msgpack.decode(claimed.content)["executions"]
    nul = msgspec.msgpack.encode({"execution_kind": "a\x00"})
    refused = await http.post("/v1/executions", content=nul, headers=headers)
    assert msgspec.msgpack.decode(made.content)["result"] == "created"
    assert [(each["input_base64"], each["encoding"]) for each in found] == [
        (b"\x00\xff", "raw"),
        (b'{"n":[1,null]}', "json"),
    ]
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "execution_kind")


def test_every_public_route_is_meant_to_be_public() -> None:
    assert {each.path for each in ROUTES if each.scope is Scope.PUBLIC} == {
        "/healthz",
        "/livez",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/docs",
        "/docs/{file}",
        "/v1/callbacks/{execution_id}/{waitpoint_id}",
        "/v1/callbacks/{execution_id}/{waitpoint_id}/question",
    }


NEVER = {"spec_kind": "cron", "cron": "0 0 30 2 *"}
SPECS: list[tuple[dict[str, Any], str]] = [
    ({"spec_kind": "cron", "cron": "99 * * * *"}, "cron '99 * * * *' is not a cron expression"),
    (NEVER, "cron '0 0 30 2 *'"),
    ({"spec_kind": "cron"}, "cron is missing: spec_kind is cron"),
    ({"spec_kind": "cron", "cron": "@daily", "tz": "Mars/Base"}, "tz 'Mars/Base' is not the name"),
    ({"spec_kind": "cron", "cron": "@daily", "every": 60}, "every '0:01:00' does not go with"),
    ({"spec_kind": "interval"}, "every is missing: spec_kind is interval"),
    ({"spec_kind": "interval", "every": 0.5}, "every '0:00:00.500000' must be at least 1 second"),
    ({"spec_kind": "interval", "every": 60, "tz": "Europe/Berlin"}, "tz 'Europe/Berlin' does not"),
    ({"spec_kind": "interval", "every": 60, "cron": "@daily"}, "cron '@daily' does not go with"),
    ({"spec_kind": "once"}, "at is missing: spec_kind is once"),
]


async def test_a_bad_schedule_is_refused_by_its_field(http: Caller, ff_engine: Engine) -> None:
    schedule: dict[str, Any] = {"name": "s", "execution_kind": "job"}
    for spec, said in SPECS:
        answer = await http.post("/v1/schedules", json={**schedule, "spec": spec})
        assert (answer.status_code, said in answer.text) == (422, True), (spec, answer.text)
    assert (await ff_engine.list_schedules()).schedules == []

    good = {"spec_kind": "cron", "cron": "@daily"}
    assert (await http.post("/v1/schedules", json={**schedule, "spec": good})).status_code == 201
    changed = await http.patch("/v1/schedules/s", json={"spec": NEVER})
    assert (changed.status_code, "cron '0 0 30 2 *'" in changed.text) == (422, True)


async def test_a_bad_place_in_a_stream_is_refused_by_its_field_and_value(http: Caller) -> None:
    x = (await http.post("/v1/executions", json=submit())).headers["location"]
    for field, value in (
        ("from", "-"),
        ("to", "9-9-9"),
        ("after", "start"),
        ("after", "end"),
        ("limit", "0"),
        ("limit", "1001"),
        ("wait", "31"),
        ("visibility", "some"),
    ):
        after = "&after=0-0" if field == "wait" else ""
        answer = await http.get(f"{x}/attempts/0/frames?{field}={value}{after}")
        [error] = answer.json()["errors"]
        assert (answer.status_code, error["field"]) == (422, field)
        assert value in error["detail"], error
    nothing_to_wait_for = await http.get(f"{x}/attempts/0/frames?wait=5")
    assert nothing_to_wait_for.status_code == 422
    assert "wait: needs after" in nothing_to_wait_for.json()["detail"]


async def test_a_bad_budget_or_limit_is_refused_by_its_field_and_nothing_is_written(
    http: Caller,
) -> None:
    big = 2**63
    for body, field, value in (
        ({"hard_limits": {"a": -1}}, "hard_limits['a']", "-1"),
        ({"hard_limits": {"a": big}}, "hard_limits['a']", str(big)),
        ({"hard_limits": {"a": 1.5}}, "hard_limits[...]", "float"),
        ({"soft_limits": {"a": True}}, "soft_limits[...]", "bool"),
        ({"hard_limits": {"": 1}}, "dimensions", "''"),
        ({"enforcement_mode": "lax"}, "enforcement_mode", "'lax'"),
        ({"reset_interval": -1}, "reset_interval", "-1"),
    ):
        await _refused(http, "/v1/budgets", {"budget_id": "b", **body}, field, value)
    for report, field, value in (
        ({"dimensions": ["a"], "deltas": [1, 2]}, "deltas", "2"),
        ({"dimensions": ["a", "a"], "deltas": [1, 2]}, "dimensions", "twice"),
        ({"dimensions": ["a"], "deltas": [-1]}, "deltas", "-1"),
        ({"dimensions": ["a"], "deltas": [big]}, "deltas", str(big)),
    ):
        await _refused(http, "/v1/budgets/b/report", report, field, value)
    for limits, field, value in (
        ({"max_requests_per_window": 5}, "max_requests_per_window", "5 needs a window"),
        ({"max_concurrent": -1}, "max_concurrent", "-1"),
        ({"max_concurrent": 1.5}, "limits.max_concurrent", "float"),
        ({"max_concurrent": "2"}, "limits.max_concurrent", "str"),
        ({"max_concurrent": 10**12}, "max_concurrent", "1000000000000"),
    ):
        await _refused(http, "/v1/quotas", {"name": "q", "limits": limits}, field, value)
    key = {**submit(), "limit": {"name": "q"}, "limit_key": 5}
    await _refused(http, "/v1/executions", key, "limit_key", "int")

    for path in ("/v1/budgets", "/v1/quotas", "/v1/executions"):
        assert (await http.get(path)).json()["items"] == []
    assert (await http.get("/v1/budgets/b")).status_code == 404


async def _refused(http: Caller, path: str, body: Any, field: str, value: str) -> None:
    answer = await http.post(path, json=body)
    assert answer.status_code in (400, 422), (body, answer.text)
    [error] = answer.json()["errors"]
    assert field in error["field"], (body, error)
    assert value in error["detail"], (body, error)
