"""Lists of values cross the wire by columns as each value does alone."""

from datetime import UTC, datetime
from uuid import UUID

import msgspec
import pytest

from flowfabric.api.forms import Wanted, form
from flowfabric.api.leaves import Form
from flowfabric.engine.lifecycle.complete import Completed, Completion
from flowfabric.engine.lifecycle.lease import Lease, LeaseHandleKind
from flowfabric.engine.lifecycle.sql.lease import Claimed
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.states import AttemptType

GIVEN = Wanted("in", packed=True)
ANSWER = Wanted("out", packed=True)
READ = Wanted("out", packed=True, read=True)
LEASES = [Lease(ExecutionId(7, UUID(int=each)), each, 1, UUID(int=9)) for each in range(1, 4)]


def crossed(value: object, written: Form, read: Form) -> object:
    """The value, written and read again."""
    data = msgspec.msgpack.encode(written.dumped(value))
    return read.loaded(msgspec.msgpack.decode(data, type=read.wire))


def claimed(lease: Lease, *, deadline: float | None) -> Claimed:
    return Claimed(
        lease=lease,
        lane_id="default",
        execution_kind="job",
        input_payload=b"{}",
        payload_encoding=None,
        tags={},
        attempt_type=AttemptType.INITIAL,
        total_attempt_count=1,
        attempt_timeout=None,
        deadline=deadline,
        claimed_at=datetime(2026, 1, 1, tzinfo=UTC),
        kind=LeaseHandleKind.FRESH,
    )


def test_claims_are_the_same_after_they_were_answered() -> None:
    claims = [claimed(LEASES[0], deadline=None), claimed(LEASES[1], deadline=2.5)]

    kind = list[Claimed]
    assert crossed(claims, form(kind, ANSWER), form(kind, READ)) == claims


def test_completions_are_the_same_after_they_were_given() -> None:
    completions = [
        Completion(LEASES[0]),
        Completion(LEASES[1], b"1", "json"),
        Completion(LEASES[2], b"\xff", "raw"),
    ]

    found = form(list[Completion], GIVEN)
    assert crossed(completions, found, found) == completions


@pytest.mark.parametrize("kind", [Completion, Completed])
def test_a_list_without_values_is_empty(kind: type) -> None:
    found = form(list[kind], GIVEN)

    assert crossed([], found, found) == []


def test_a_payload_as_it_is_may_stand_beside_one_of_bytes() -> None:
    found = form(list[Completion], GIVEN)
    handle = {"handle": form(Lease, GIVEN).dumped(LEASES[0])}
    rows = [{**handle, "result": {"a": 1}}, {**handle, "result_base64": b"2"}, handle]

    data = msgspec.msgpack.encode(rows)
    loaded = found.loaded(msgspec.msgpack.decode(data, type=found.wire))

    assert [each.result for each in loaded] == [b'{"a":1}', b"2", None]


def test_a_value_that_is_refused_names_its_member() -> None:
    found = form(list[Completion], GIVEN)
    rows = [{"handle": form(Lease, GIVEN).dumped(LEASES[0])}, {"handle": b"no lease"}]
    data = msgspec.msgpack.encode(rows)

    with pytest.raises(ValidationError) as refused:
        found.loaded(msgspec.msgpack.decode(data, type=found.wire))

    assert (refused.value.code, refused.value.field) == ("corruption", "handle")
