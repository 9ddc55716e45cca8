"""The SQL functions of the schema: `functions/<name>.sql`, applied again whenever a file changes.

The table `ff.function_annotation` lists the functions that were applied, with the checksums of
their files. A function whose file is gone is dropped if it is listed there; other functions in the
schema are left alone.

`CREATE OR REPLACE` cannot change a signature (argument types, argument names, result). A file that
changes one comes with a numbered migration that drops the old function.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from graphlib import TopologicalSorter
from importlib import resources
from typing import Final, LiteralString

import asyncpg
import msgspec

from flowfabric.db.faults import translated
from flowfabric.db.rows import Connection, execute, fetch_all
from flowfabric.errors import Unavailable

STORED_FUNCTIONS: Final[LiteralString] = """
-- db.stored_functions
SELECT a.name, a.checksum,
       EXISTS (SELECT FROM pg_proc p
                WHERE p.pronamespace = 'ff'::regnamespace AND p.proname = a.name) AS found
  FROM ff.function_annotation a
"""

SIGNATURES: Final[LiteralString] = """
-- db.apply_functions: the signatures of these functions
SELECT p.proname::text AS name, p.oid::regprocedure::text AS signature
  FROM pg_proc p
 WHERE p.pronamespace = 'ff'::regnamespace AND p.proname = ANY (%(names)s::text[])
 ORDER BY 1, 2
"""

# Not ff.now_ms(), which is one of the functions that are applied here.
RECORD: Final[LiteralString] = """
-- db.apply_functions: record an applied function
INSERT INTO ff.function_annotation (name, checksum, applied_at_ms)
VALUES (%(name)s, %(checksum)s, floor(date_part('epoch', statement_timestamp()) * 1000)::bigint)
    ON CONFLICT (name) DO UPDATE
   SET checksum = EXCLUDED.checksum, applied_at_ms = EXCLUDED.applied_at_ms
"""

REMOVE: Final[LiteralString] = """
-- db.apply_functions: delete the records of dropped functions
DELETE FROM ff.function_annotation WHERE name = ANY (%(names)s::text[])
"""

_COMMENT: Final = re.compile(r"--[^\n]*")
_CALL: Final = re.compile(r"\bff\.(\w+)\s*\(")


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """One file of `functions/`."""

    name: str
    sql: str
    checksum: str

    @property
    def calls(self) -> set[str]:
        """The names that the text calls as `ff.name(…)`; names of tables may be among them."""
        return set(_CALL.findall(_COMMENT.sub("", self.sql))) - {self.name}


class Stored(msgspec.Struct, frozen=True):
    """One row of `ff.function_annotation`, and whether the function is in the database."""

    name: str
    checksum: str
    found: bool


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the functions that were applied, in order, and of those that were dropped."""

    applied: Sequence[str] = ()
    dropped: Sequence[str] = ()


class _Signature(msgspec.Struct, frozen=True):
    name: str
    signature: str


def functions() -> list[Function]:
    """The functions that this package ships; each comes after the functions that it calls."""
    found: list[Function] = []
    for path in resources.files("flowfabric.db").joinpath("functions").iterdir():
        if path.name.endswith(".sql"):
            sql = path.read_text(encoding="utf-8")
            checksum = hashlib.sha256(sql.encode()).hexdigest()
            found.append(Function(name=path.name.removesuffix(".sql"), sql=sql, checksum=checksum))
    return callees_first(found)


def callees_first(found: Sequence[Function]) -> list[Function]:
    """Sort: Postgres refuses a function of language sql that calls a missing function."""
    by_name = {function.name: function for function in sorted(found, key=lambda each: each.name)}
    order = TopologicalSorter(
        {name: sorted(function.calls & by_name.keys()) for name, function in by_name.items()}
    )
    return [by_name[name] for name in order.static_order()]


async def stored_functions(conn: Connection) -> dict[str, Stored]:
    """The functions that were applied to this database, by name."""
    return {row.name: row for row in await fetch_all(conn, STORED_FUNCTIONS, Stored)}


async def differing_functions(conn: Connection) -> list[str]:
    """The names of functions that `apply_functions` would apply or drop."""
    stored = await stored_functions(conn)
    shipped = functions()
    gone = stored.keys() - {function.name for function in shipped}
    return sorted(gone | {each.name for each in shipped if not _is_stored(each, stored)})


async def apply_functions(conn: Connection) -> Changed:
    """Apply the functions that this package ships and drop those that it no longer ships.

    Runs in the caller's transaction. Raises `Unavailable`, which names the function, when a
    function cannot be replaced because its signature changed, or cannot be dropped.
    """
    stored = await stored_functions(conn)
    shipped = functions()
    changed = [each for each in shipped if not _is_stored(each, stored)]
    for function in changed:
        await _apply(conn, function)
    await _refuse_second_signatures(conn, [function.name for function in changed])
    # Last, because the old text of a replaced function may call a dropped one.
    gone = sorted(stored.keys() - {function.name for function in shipped})
    if gone:
        await _drop(conn, gone)
    return Changed(applied=[function.name for function in changed], dropped=gone)


def _is_stored(function: Function, stored: dict[str, Stored]) -> bool:
    found = stored.get(function.name)
    return found is not None and found.found and found.checksum == function.checksum


async def _apply(conn: Connection, function: Function) -> None:
    with translated(f"-- db.migrate: function {function.name}\n", conn):
        try:
            await conn.execute(function.sql)
        except asyncpg.InvalidFunctionDefinitionError as error:
            raise Unavailable(
                "migrate",
                f"function ff.{function.name} cannot be replaced: {_one_line(error)}; "
                "a new signature needs a migration that drops the old function",
            ) from error
    await execute(conn, RECORD, name=function.name, checksum=function.checksum)


def _one_line(error: asyncpg.PostgresError) -> str:
    """The message with its detail, in one line."""
    return " ".join(str(error).split())


async def _refuse_second_signatures(conn: Connection, names: Sequence[str]) -> None:
    """Raise if a function exists twice: Postgres keeps the old one if argument types differ."""
    seen: dict[str, str] = {}
    for row in await fetch_all(conn, SIGNATURES, _Signature, names=names):
        if row.name in seen:
            raise Unavailable(
                "migrate",
                f"function ff.{row.name} would exist twice, as {seen[row.name]} and as "
                f"{row.signature}; a new signature needs a migration that drops the old function",
            )
        seen[row.name] = row.signature


async def _drop(conn: Connection, names: Sequence[str]) -> None:
    found = await fetch_all(conn, SIGNATURES, _Signature, names=names)
    if found:
        signatures = ", ".join(row.signature for row in found)
        with translated(f"-- db.migrate: drop {signatures}\n", conn):
            try:
                # One statement for all: a dropped function may call another dropped one.
                await conn.execute(f"DROP FUNCTION {signatures}")
            except asyncpg.DependentObjectsStillExistError as error:
                raise Unavailable(
                    "migrate", f"cannot drop {signatures}: {_one_line(error)}"
                ) from error
    await execute(conn, REMOVE, names=names)
