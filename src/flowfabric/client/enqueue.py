"""Submit on the caller's own connection: part of their transaction, whatever their driver."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Final, cast

from flowfabric.db.rows import positional
from flowfabric.engine.lifecycle.create_execution import (
    CREATE_EXECUTION,
    Created,
    CreationRow,
    Duplicate,
    NewExecution,
    creation_answers,
    creation_columns,
    distinct,
)
from flowfabric.errors import ConfigError

_CONNECTIONS: Final = ("Connection", "PoolConnectionProxy", "AsyncConnection")
_SUPPORTED: Final = "psycopg 3 (sync and async), asyncpg, SQLAlchemy over either"


async def enqueue(
    conn: Any, executions: Sequence[NewExecution], *, partitions: int
) -> list[Created | Duplicate]:
    """Create on `conn`; nothing is committed here, and a rollback leaves nothing."""
    parameters = _parameters(distinct(executions), partitions)
    match driver_of(conn):
        case "asyncpg":
            text, names = positional(CREATE_EXECUTION)
            rows = await conn.fetch(text, *[parameters[name] for name in names])
        case "psycopg":
            cursor = _plain_cursor(conn)
            executed = cursor.execute(CREATE_EXECUTION, parameters)
            if inspect.isawaitable(executed):
                await executed
            fetched = cursor.fetchall()
            rows = await fetched if inspect.isawaitable(fetched) else fetched
        case _:
            result = conn.exec_driver_sql(*_for_sqlalchemy(conn, parameters))
            result = await result if inspect.isawaitable(result) else result
            rows = result.fetchall()
    return _answers(executions, rows)


def enqueue_blocking(
    conn: Any, executions: Sequence[NewExecution], *, partitions: int
) -> list[Created | Duplicate]:
    """The same on a blocking connection, without an event loop."""
    parameters = _parameters(distinct(executions), partitions)
    execute = getattr(conn, "exec_driver_sql", None) or getattr(conn, "execute", None)
    if inspect.iscoroutinefunction(execute):
        raise ConfigError("submit", "conn", "must be a blocking connection here")
    match driver_of(conn):
        case "psycopg":
            rows = _plain_cursor(conn).execute(CREATE_EXECUTION, parameters).fetchall()
        case "sqlalchemy":
            rows = conn.exec_driver_sql(*_for_sqlalchemy(conn, parameters)).fetchall()
        case _:
            raise ConfigError("submit", "conn", "must be a blocking connection here")
    return _answers(executions, rows)


def driver_of(conn: Any) -> str:
    """Which library a connection comes from; raises `ConfigError` for one we cannot use."""
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


def _for_sqlalchemy(conn: Any, parameters: dict[str, Any]) -> tuple[str, Any]:
    if conn.dialect.driver == "asyncpg":
        text, names = positional(CREATE_EXECUTION)
        return text, tuple(parameters[name] for name in names)
    if conn.dialect.driver.startswith("psycopg") and conn.dialect.driver != "psycopg2":
        return CREATE_EXECUTION, parameters
    raise ConfigError("submit", "conn", f"SQLAlchemy over {conn.dialect.driver} is not supported")


def _parameters(executions: Sequence[NewExecution], partitions: int) -> dict[str, Any]:
    return {**creation_columns(executions, partitions=partitions), "now_ms": None}


def _answers(executions: Sequence[NewExecution], rows: Sequence[Any]) -> list[Created | Duplicate]:
    return creation_answers(executions, [CreationRow(*_values(row)) for row in rows])


def _values(row: Any) -> Sequence[Any]:
    """The columns in order, whatever shape the caller's rows have."""
    return list(cast("dict[str, Any]", row).values()) if isinstance(row, dict) else list(row)
