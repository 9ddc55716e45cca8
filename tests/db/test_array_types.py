"""The driver does not ask the server about the arrays that our statements have."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from flowfabric.db.array_types import ARRAY_TYPES
from flowfabric.db.rows import Connection

IN_THE_CATALOG = """
SELECT oid::bigint AS oid, typname::text AS name, typelem::bigint AS element,
       typdelim::text AS delim
  FROM pg_type WHERE oid = ANY ($1::oid[])
"""


async def test_the_types_are_those_of_the_server(db: Connection) -> None:
    rows = await db.fetch(IN_THE_CATALOG, list(ARRAY_TYPES))

    assert {row["oid"]: (row["name"], row["element"]) for row in rows} == ARRAY_TYPES
    assert {row["delim"] for row in rows} == {","}


async def test_arrays_are_passed_and_returned(db: Connection) -> None:
    arrays = {
        "boolean": [True, None],
        "bytea": [b"a", b""],
        "smallint": [1, None],
        "integer": [2**30],
        "bigint": [2**60, -1],
        "double precision": [1.5],
        "timestamptz": [datetime(2026, 1, 1, tzinfo=UTC)],
        "uuid": [UUID(int=7), None],
        "jsonb": ['{"a": 1}'],
    }

    for name, value in arrays.items():
        assert await db.fetchval(f"SELECT $1::{name}[]", value) == value
        assert await db.fetchval(f"SELECT array_remove($1::{name}[], NULL)", []) == []


async def test_other_types_are_still_found(db: Connection) -> None:
    assert await db.fetchval("SELECT ARRAY['ff.lease'::regclass::text, NULL]") == ["ff.lease", None]
    assert await db.fetchval("SELECT ARRAY[int4range(1, 3)]") is not None
    assert await db.fetchval("SELECT ROW(1, 'a'::text)") == (1, "a")
