"""The trace context of a request is kept with what it submits, and never keeps it from that."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.tracing import TRACEPARENT
from tests.server.conftest import Caller

CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-00"
JOB = {"execution_kind": "job"}


async def tags_of_all(http: Caller) -> list[dict[str, str]]:
    """The tags of everything that can be claimed, in the order of the submits."""
    worker = {"worker_id": "w", "worker_instance_id": "w-1", "limit": 100}
    claimed = await http.post("/v1/work/claim", json=worker)
    return [each["tags"] for each in claimed.json()["executions"]]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/executions", JOB),
        ("/v1/executions/batch", {"executions": [JOB]}),
        ("/v1/flows", {"flow_kind": "f", "members": [{**JOB, "member_name": "a"}]}),
    ],
)
async def test_the_trace_of_a_request_is_kept_with_what_it_submits(
    http: Caller, path: str, body: Any
) -> None:
    made = await http.post(path, json=body, headers={"traceparent": CONTEXT})

    assert made.status_code in (200, 201), made.text
    assert await tags_of_all(http) == [{TRACEPARENT: CONTEXT}]


async def test_the_trace_of_a_later_version_is_kept_as_far_as_it_is_known(http: Caller) -> None:
    await http.post(
        "/v1/executions", json=JOB, headers={"traceparent": f"01{CONTEXT[2:]}-{'x' * 5000}"}
    )

    assert await tags_of_all(http) == [{TRACEPARENT: f"01{CONTEXT[2:]}"}]


@pytest.mark.parametrize(
    ("tags", "context"),
    [
        ({TRACEPARENT: OTHER}, CONTEXT),
        ({"shop.tenant": "a"}, "00-unreadable"),
        ({f"shop.tag{number}": "" for number in range(64)}, CONTEXT),
        ({f"shop.tag{number}": "x" * 1013 for number in range(16)}, CONTEXT),
    ],
    ids=["its own", "unreadable", "many tags", "long tags"],
)
async def test_a_submit_is_not_refused_for_its_trace_and_keeps_its_tags(
    http: Caller, tags: dict[str, str], context: str
) -> None:
    made = await http.post(
        "/v1/executions", json={**JOB, "tags": tags}, headers={"traceparent": context}
    )

    assert made.status_code == 201, made.text
    assert await tags_of_all(http) == [tags]
