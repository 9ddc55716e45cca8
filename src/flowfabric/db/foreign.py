"""Statements on a connection of the caller's own, with any supported driver."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final, LiteralString

from flowfabric.db.rows import positional
from flowfabric.errors import ConfigError

_CONNECTIONS: Final = ("Connection", "PoolConnectionProxy", "AsyncConnection")
_SUPPORTED: Final = "psycopg 3 (sync and async), asyncpg, SQLAlchemy over either"


async def fetch_on(conn: Any, sql: LiteralString, parameters: Mapping[str, Any]) -> Sequence[Any]:
    """The rows of a statement; errors are the driver's own."""
    driver = driver_of(conn)
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


def fetch_blocking(conn: Any, sql: LiteralString, parameters: Mapping[str, Any]) -> Sequence[Any]:
    """The same on a blocking connection, without an event loop."""
    execute = getattr(conn, "exec_driver_sql", None) or getattr(conn, "execute", None)
    driver = driver_of(conn)
    if inspect.iscoroutinefunction(execute) or driver == "asyncpg":
        raise ConfigError("submit", "conn", "must be a blocking connection here")
    if driver == "psycopg":
        return _plain_cursor(conn).execute(sql, parameters).fetchall()
    return conn.exec_driver_sql(*_for_sqlalchemy(conn, sql, parameters)).fetchall()


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
