"""The forms of engine types: what is written is read back as it was, in JSON and MessagePack."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from flowfabric import engine
from flowfabric.api.forms import Wanted, form
from flowfabric.conditions.condition import CountOf
from flowfabric.engine import (
    AnyOf,
    Claimed,
    Completed,
    CurrentLease,
    DatabaseConfig,
    ExecutionOutcome,
    ExponentialBackoff,
    Frame,
    FrameId,
    Fresh,
    Lease,
    LeaseHandleKind,
    NewExecution,
    RetryPolicy,
    SuspendRequest,
)
from flowfabric.errors import StaleLease
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy
from flowfabric.states import AttemptType, FrameMode, PublicState
from tests.all_cases import all_cases

ID = ExecutionId.mint()
NOW = datetime(2026, 11, 16, 5, 10, 11, 123000, tzinfo=UTC)
LEASE = Lease(ID, 2, 7, uuid4())
STRUCTS = [
    each
    for name in engine.__all__
    if inspect.isclass(each := getattr(engine, name))
    and issubclass(each, msgspec.Struct)
    and each is not DatabaseConfig
]


def crossed(kind: Any, value: Any, *, use: Any, packed: bool) -> Any:
    """The value after it was written and read."""
    found = form(kind, Wanted(use, packed))
    if packed:
        wire = msgspec.msgpack.encode(found.dumped(value))
        return found.loaded(msgspec.msgpack.decode(wire, type=found.wire))
    wire = msgspec.json.encode(found.dumped(value))
    return found.loaded(msgspec.json.decode(wire, type=found.wire))


def claimed(payload: bytes, encoding: str | None) -> Claimed:
    return Claimed(
        lease=LEASE,
        lane_id="default",
        execution_kind="job",
        input_payload=payload,
        payload_encoding=encoding,
        tags={"shop.tenant": "acme"},
        attempt_type=AttemptType.RETRY,
        total_attempt_count=3,
        attempt_timeout=1.5,
        deadline=None,
        claimed_at=NOW,
        flow_id=uuid4(),
        kind=LeaseHandleKind.RESUMED,
    )


VALUES = [
    claimed(b'{"n":12345678901234567890123,"x": 1.0}', "json"),
    claimed(b"\x00\xff", "raw"),
    claimed(b"{not json", "json"),
    claimed(b"", None),
    NewExecution(
        execution_id=ID,
        execution_kind="job",
        delay=2.5,
        tags={"a.b": "c"},
        required_capabilities=("gpu",),
        policy=ExecutionPolicy(retry_policy=RetryPolicy(backoff=ExponentialBackoff())),
    ),
    SuspendRequest(
        lease=LEASE,
        bindings=(Fresh(waitpoint_key="a"), Fresh(waitpoint_key="b")),
        condition=CountOf(2, ("a", "b"), distinct="sources", name="go"),
        timeout_at=NOW,
    ),
    CurrentLease(
        lease_id=uuid4(),
        lease_epoch=3,
        worker_id="w",
        worker_instance_id="w-1",
        expires_at=NOW,
        attempt_index=0,
    ),
    Frame(id=FrameId(5, 1), attempt_index=0, mode=FrameMode.DURABLE, frame_type="x", payload=b"1"),
]


@pytest.mark.parametrize("packed", [False, True], ids=["json", "msgpack"])
def test_values_cross_the_wire_unchanged(packed: bool) -> None:
    for value in VALUES:
        for use in ("in", "out"):
            assert crossed(type(value), value, use=use, packed=packed) == value
    for policy in (AnyOf(), None):
        assert crossed(AnyOf | engine.Quorum | None, policy, use="out", packed=packed) == policy
    several = [Completed(execution_id=ID), Completed(execution_id=ID, repeated=True)]
    union = list[Completed | StaleLease]
    assert crossed(union, several, use="out", packed=packed) == several


@all_cases("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_every_type_of_the_engine_has_a_form(kind: type[msgspec.Struct]) -> None:
    for wanted in (Wanted("in"), Wanted("out"), Wanted("in", True), Wanted("out", True)):
        msgspec.json.Decoder(form(kind, wanted).wire)


def test_answers_are_written_as_the_reference_says() -> None:
    outcome = ExecutionOutcome(
        execution_id=ID,
        public_state=PublicState.COMPLETED,
        failure_reason=None,
        failure_category=None,
        cancellation_reason=None,
        cancelled_by=None,
        result=b"[1, 2]",
        result_encoding="json",
    )
    told = form(ExecutionOutcome, Wanted("out")).dumped(outcome)
    text = msgspec.json.encode(told)
    assert b'"result":[1, 2],"result_base64":null,"encoding":"json"' in text
    refused = StaleLease(ID, held=3, current=4)
    [row] = form(list[Completed | StaleLease], Wanted("out")).dumped([refused])
    assert (row["result"], row["kind"], row["held"]) == ("refused", "stale_lease", 3)
    assert row["execution_id"] == str(ID)
    assert form(timedelta, Wanted("out")).dumped(timedelta(minutes=2)) == 120.0
    instant = msgspec.json.encode(form(datetime, Wanted("out")).dumped(NOW))
    assert instant == b'"2026-11-16T05:10:11.123000Z"'
