"""Every error as a problem: its kind is in the document, and it can be written as JSON."""

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec

from flowfabric import errors
from flowfabric.api.problems import error_of, problem_of
from flowfabric.errors import FlowFabricError, NotFound, ValidationError, invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.server.openapi import problem_kinds
from tests.all_cases import all_cases

CLASSES = [
    each
    for name in errors.__all__
    if inspect.isclass(each := getattr(errors, name)) and issubclass(each, FlowFabricError)
]


def made(kind: type[FlowFabricError]) -> FlowFabricError:
    """An error of this class, with facts of every kind."""
    error = kind.__new__(kind)
    error.args = ("what happened",)
    error.execution_id = ExecutionId.mint()  # pyright: ignore[reportAttributeAccessIssue]
    error.flow_id, error.epoch = uuid4(), 3  # pyright: ignore[reportAttributeAccessIssue]
    error.until = datetime.now(UTC)  # pyright: ignore[reportAttributeAccessIssue]
    error.token = "canary"  # pyright: ignore[reportAttributeAccessIssue]
    error.grace = timedelta(seconds=2)  # pyright: ignore[reportAttributeAccessIssue]
    return error


def test_every_class_has_its_kind_in_the_document() -> None:
    known = set(problem_kinds())
    assert {kind.code for kind in CLASSES} <= known
    assert known >= ValidationError.CODES


@all_cases("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_becomes_a_problem_with_its_facts(kind: type[FlowFabricError]) -> None:
    error = made(kind)
    if isinstance(error, ValidationError):
        error.field = error.detail = None  # pyright: ignore[reportAttributeAccessIssue]
    told: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(problem_of(error)))
    assert (told["kind"], told["category"]) == (kind.code, kind.kind)
    assert (told["epoch"], told["grace"], told["detail"]) == (3, 2.0, "what happened")
    assert told["execution_id"] == str(error.execution_id)  # pyright: ignore
    assert "canary" not in str(told)
    assert 400 <= told["status"] < 600


def test_a_problem_becomes_the_same_error_again() -> None:
    execution_id = ExecutionId.mint()
    for error in (
        errors.StaleLease(execution_id, held=3, current=4),
        errors.LeaseExpired(execution_id, lease_epoch=7),
        NotFound("flow", "x"),
        invalid_input("limit", 0, "must be 1 to 1000"),
        errors.Unavailable("keys", "seed one"),
        errors.OperationTimeout("claim", 2.0),
        errors.InvalidToken(),
    ):
        told = msgspec.json.decode(msgspec.json.encode(problem_of(error)))
        again = error_of(told)
        assert again is not None
        assert type(again) is type(error)
        assert (str(again), again.code) == (str(error), error.code)
        assert vars(again) | {"code": error.code} == vars(error) | {"code": error.code}
    assert error_of({"kind": "of_the_future"}) is None


def test_an_invalid_argument_names_its_field() -> None:
    told = problem_of(invalid_input("limit", 0, "must be 1 to 1000"), instance="req_1")
    assert (told["status"], told["instance"]) == (422, "req_1")
    assert told["errors"] == [{"field": "limit", "detail": "limit 0 must be 1 to 1000"}]
    assert problem_of(NotFound("flow", "x"))["kind"] == "flow_not_found"
