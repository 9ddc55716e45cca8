"""Submits on the caller's own connection, as part of its transaction, with any driver."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, LiteralString, cast

from flowfabric.db.faults import LANE_CLOSED, lane_not_accepting
from flowfabric.db.foreign import fetch_blocking, fetch_on
from flowfabric.engine.flows.submission import (
    SUBMIT_FLOWS,
    FlowSubmitted,
    Submission,
    SubmissionRow,
)
from flowfabric.engine.lifecycle.create_execution import (
    CREATE_EXECUTION,
    Creation,
    CreationRow,
    NewExecution,
    creation_answers,
    distinct,
)
from flowfabric.engine.lifecycle.creation_columns import creation_columns
from flowfabric.errors import EngineError, NeedsDatabase

if TYPE_CHECKING:
    from flowfabric.engine.flows.new_flow import NewFlow
    from flowfabric.remote.engine_like import EngineLike


async def enqueue(
    conn: Any, executions: Sequence[NewExecution], *, engine: EngineLike
) -> list[Creation]:
    """Create the executions on `conn`; the caller has just made their ids, and commits."""
    parameters = _parameters(distinct(executions), _partitions(engine))
    return _answers(executions, await _fetch(conn, CREATE_EXECUTION, parameters))


def enqueue_blocking(
    conn: Any, executions: Sequence[NewExecution], *, engine: EngineLike
) -> list[Creation]:
    """The same on a blocking connection, without an event loop."""
    parameters = _parameters(distinct(executions), _partitions(engine))
    return _answers(executions, _fetch_blocking(conn, CREATE_EXECUTION, parameters))


async def enqueue_flow(conn: Any, flow: NewFlow, *, engine: EngineLike) -> FlowSubmitted:
    """Submit a flow on `conn`; the caller commits or rolls back."""
    partitions = _partitions(engine)
    flow.check(partitions=partitions)
    submission = Submission([flow], partitions=partitions)
    return _submitted(submission, await _fetch(conn, SUBMIT_FLOWS, submission.columns()))


def enqueue_flow_blocking(conn: Any, flow: NewFlow, *, engine: EngineLike) -> FlowSubmitted:
    """The same on a blocking connection, without an event loop."""
    partitions = _partitions(engine)
    flow.check(partitions=partitions)
    submission = Submission([flow], partitions=partitions)
    return _submitted(submission, _fetch_blocking(conn, SUBMIT_FLOWS, submission.columns()))


def _partitions(engine: EngineLike) -> int:
    """How many partitions the database has; raises `NeedsDatabase` for one behind a server."""
    if engine.is_remote is True:
        why = "conn= needs a client that is connected to the database itself, not to a server"
        raise NeedsDatabase("submit", why)
    return engine.partitions


async def _fetch(conn: Any, sql: LiteralString, parameters: Mapping[str, Any]) -> Sequence[Any]:
    with _closed_lanes_named():
        return await fetch_on(conn, sql, parameters)


def _fetch_blocking(conn: Any, sql: LiteralString, parameters: Mapping[str, Any]) -> Sequence[Any]:
    with _closed_lanes_named():
        return fetch_blocking(conn, sql, parameters)


@contextmanager
def _closed_lanes_named() -> Generator[None]:
    """Raise `LaneNotAccepting` for a lane that takes nothing; other errors are the driver's own."""
    try:
        yield
    except Exception as error:
        cause = getattr(error, "orig", None) or error
        if getattr(cause, "sqlstate", None) == LANE_CLOSED:
            raise lane_not_accepting(str(cause)) from error
        raise


def _parameters(executions: Sequence[NewExecution], partitions: int) -> dict[str, Any]:
    return {**creation_columns(executions, partitions=partitions, fresh=True), "now_ms": None}


def _answers(executions: Sequence[NewExecution], rows: Sequence[Any]) -> list[Creation]:
    return creation_answers(executions, [CreationRow(*_values(row)) for row in rows])


def _submitted(submission: Submission, rows: Sequence[Any]) -> FlowSubmitted:
    [answer] = submission.answers([SubmissionRow(*_values(row)) for row in rows])
    if isinstance(answer, EngineError):
        raise answer
    return answer


def _values(row: Any) -> Sequence[Any]:
    """The columns of a row in order; the caller's rows may be dicts or sequences."""
    return list(cast("dict[str, Any]", row).values()) if isinstance(row, dict) else list(row)
