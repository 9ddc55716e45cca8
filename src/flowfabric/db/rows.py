"""Runs statements and returns their rows as structs."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final, LiteralString, TypeAlias, TypeVar

import asyncpg
import msgspec
from asyncpg.pool import PoolConnectionProxy

from flowfabric.db.faults import statement_name, translated
from flowfabric.db.steps import current_step

Connection: TypeAlias = "asyncpg.Connection[Any] | PoolConnectionProxy[Any]"
Parameter: TypeAlias = object
R = TypeVar("R", bound=msgspec.Struct)


class Moved(msgspec.Struct, frozen=True):
    """The result row of a sweep: how many rows it moved."""

    moved: int


_NAMED: Final = re.compile(r"%\((\w+)\)s")
_checked: Final[set[tuple[str, type]]] = set()


@cache
def positional(sql: str) -> tuple[str, tuple[str, ...]]:
    """The statement with `$n` for each `%(name)s`, and the names in the order of `n`."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    return _NAMED.sub(number, sql).replace("%%", "%"), tuple(names)


async def fetch_all(
    conn: Connection, sql: LiteralString, row: type[R], **params: Parameter
) -> list[R]:
    """Run a statement and return its rows; the fields of `row` are the columns, in order."""
    text, names = positional(sql)
    if (step := current_step.get()) is not None:
        await step(conn, statement_name(sql))
    with translated(sql, conn):
        records = await conn.fetch(text, *[params[name] for name in names])
    if not records:
        return []
    if (sql, row) not in _checked:
        assert tuple(records[0].keys()) == row.__struct_fields__, (row, list(records[0].keys()))
        _checked.add((sql, row))
    return [row(*record) for record in records]


async def fetch_one(conn: Connection, sql: LiteralString, row: type[R], **params: Parameter) -> R:
    """Run a statement that returns exactly one row."""
    [only] = await fetch_all(conn, sql, row, **params)
    return only


async def fetch_maybe(
    conn: Connection, sql: LiteralString, row: type[R], **params: Parameter
) -> R | None:
    """Run a statement that returns one row or none."""
    rows = await fetch_all(conn, sql, row, **params)
    return rows[0] if rows else None


async def execute(conn: Connection, sql: LiteralString, **params: Parameter) -> None:
    """Run a statement and ignore its rows."""
    text, names = positional(sql)
    if (step := current_step.get()) is not None:
        await step(conn, statement_name(sql))
    with translated(sql, conn):
        await conn.execute(text, *[params[name] for name in names])
