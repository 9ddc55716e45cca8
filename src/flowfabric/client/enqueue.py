"""Submits on the caller's own connection, as part of its transaction, with any driver."""

from __future__ import annotations

import inspect
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, LiteralString, cast

from flowfabric.db.faults import LANE_CLOSED, lane_not_accepting
from flowfabric.db.rows import positional
from flowfabric.engine.flows.new_flow import NewFlow
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
    creation_columns,
    distinct,
)
from flowfabric.errors import ConfigError, EngineError

_CONNECTIONS: Final = ("Connection", "PoolConnectionProxy", "AsyncConnection")
_SUPPORTED: Final = "psycopg 3 (sync and async), asyncpg, SQLAlchemy over either"


async def enqueue(
    conn: Any, executions: Sequence[NewExecution], *, partitions: int
) -> list[Creation]:
    """Create the executions on `conn`; the caller commits or rolls back."""
    parameters = _parameters(distinct(executions), partitions)
    return _answers(executions, await _fetch(conn, CREATE_EXECUTION, parameters))


def enqueue_blocking(
    conn: Any, executions: Sequence[NewExecution], *, partitions: int
) -> list[Creation]:
    """The same on a blocking connection, without an event loop."""
    parameters = _parameters(distinct(executions), partitions)
    return _answers(executions, _fetch_blocking(conn, CREATE_EXECUTION, parameters))


async def enqueue_flow(conn: Any, flow: NewFlow, *, partitions: int) -> FlowSubmitted:
    """Submit a flow on `conn`; the caller commits or rolls back."""
    flow.check(partitions=partitions)
    submission = Submission([flow], partitions=partitions)
    return _submitted(submission, await _fetch(conn, SUBMIT_FLOWS, submission.columns()))


def enqueue_flow_blocking(conn: Any, flow: NewFlow, *, partitions: int) -> FlowSubmitted:
    """The same on a blocking connection, without an event loop."""
    flow.check(partitions=partitions)
    submission = Submission([flow], partitions=partitions)
    return _submitted(submission, _fetch_blocking(conn, SUBMIT_FLOWS, submission.columns()))


async def _fetch(conn: Any, sql: LiteralString, parameters: Mapping[str, Any]) -> Sequence[Any]:
    """The rows of a statement, on a connection of any supported driver."""
    driver = driver_of(conn)
    with _closed_lanes_named():
        if driver == "asyncpg":
            text, names = positional(sql)
            return await conn.fetch(text, *[parameters[name] for name in names])
        if driver == "psycopg":
            cursor = _plain_cursor(conn)
            executed = cursor.execute(sql, parameters)
            if inspect.isawaitable(executed):
                await executed
            fetched = cursor.fetchall()
            return await fetched if inspect.isawaitable(fetched) else fetched
        result = conn.exec_driver_sql(*_for_sqlalchemy(conn, sql, parameters))
        result = await result if inspect.isawaitable(result) else result
        return result.fetchall()


def _fetch_blocking(conn: Any, sql: LiteralString, parameters: Mapping[str, Any]) -> Sequence[Any]:
    execute = getattr(conn, "exec_driver_sql", None) or getattr(conn, "execute", None)
    if inspect.iscoroutinefunction(execute):
        raise ConfigError("submit", "conn", "must be a blocking connection here")
    driver = driver_of(conn)
    if driver == "asyncpg":
        raise ConfigError("submit", "conn", "must be a blocking connection here")
    with _closed_lanes_named():
        if driver == "psycopg":
            return _plain_cursor(conn).execute(sql, parameters).fetchall()
        return conn.exec_driver_sql(*_for_sqlalchemy(conn, sql, parameters)).fetchall()


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


def driver_of(conn: Any) -> str:
    """The library of a connection; raises `ConfigError` for one that is not supported."""
    for kind in type(conn).__mro__:
        library = kind.__module__.partition(".")[0]
        if library in ("asyncpg", "psycopg") and kind.__name__ in _CONNECTIONS:
            return library
        if library == "sqlalchemy" and hasattr(conn, "exec_driver_sql"):
            return library
    raise ConfigError("submit", "conn", f"{type(conn).__name__} is not one of: {_SUPPORTED}")


def _plain_cursor(conn: Any) -> Any:
    """A psycopg cursor whose rows are tuples, whatever the connection's own rows are."""
    from psycopg.rows import tuple_row

    return conn.cursor(row_factory=tuple_row)


def _for_sqlalchemy(
    conn: Any, sql: LiteralString, parameters: Mapping[str, Any]
) -> tuple[str, Any]:
    if conn.dialect.driver == "asyncpg":
        text, names = positional(sql)
        return text, tuple(parameters[name] for name in names)
    if conn.dialect.driver.startswith("psycopg") and conn.dialect.driver != "psycopg2":
        return sql, parameters
    raise ConfigError("submit", "conn", f"SQLAlchemy over {conn.dialect.driver} is not supported")


def _parameters(executions: Sequence[NewExecution], partitions: int) -> dict[str, Any]:
    return {**creation_columns(executions, partitions=partitions), "now_ms": None}


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
