"""The driver does not ask the server about the arrays that our statements have."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.array_types import ARRAY_TYPES
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection

GIVEN = {
    "boolean": True,
    "bytea": b"\x00",
    "smallint": 2,
    "integer": 4,
    "bigint": 8,
    "text": "it's, {text}",
    "double precision": 0.5,
    "uuid": UUID(int=1),
    "jsonb": "{}",
    "timestamptz": datetime(2026, 1, 1, tzinfo=UTC),
}
ECHO = f"SELECT {', '.join(f'${n}::{name}[]' for n, name in enumerate(GIVEN, 1))}"

IN_THE_CATALOG = """
SELECT oid::bigint AS oid, typname::text AS name, typelem::bigint AS element,
       typdelim::text AS delim
  FROM pg_type WHERE oid = ANY ($1::oid[])
"""


async def test_the_types_are_those_of_the_server(db: Connection) -> None:
    rows = await db.fetch(IN_THE_CATALOG, list(ARRAY_TYPES))

    assert {row["oid"]: (row["name"], row["element"]) for row in rows} == ARRAY_TYPES
    assert {row["delim"] for row in rows} == {","}


@pytest.mark.session("looks at what one session sends")
async def test_a_new_connection_passes_arrays_without_another_statement(ff_dsn: str) -> None:
    sent: list[str] = []
    conn = await connect(DatabaseConfig(dsn=ff_dsn), role="test")
    try:
        with conn.query_logger(lambda query: sent.append(query.query)):
            row = await conn.fetchrow(ECHO, *[[each, None] for each in GIVEN.values()])
            await asyncio.sleep(0)  # the driver calls its loggers in the next turn of the loop
        assert sent == [ECHO]
        assert row is not None
        assert [list(each) for each in row.values()] == [[each, None] for each in GIVEN.values()]
        assert await conn.fetchval("SELECT $1::interval[]", []) == [], "others are asked for"
    finally:
        await conn.close()


def test_the_driver_has_the_method_that_is_replaced() -> None:
    assert hasattr(asyncpg.Connection, "_introspect_types")


async def test_other_types_are_still_found(db: Connection) -> None:
    assert await db.fetchval("SELECT ARRAY['ff.lease'::regclass::text, NULL]") == ["ff.lease", None]
    assert await db.fetchval("SELECT ARRAY[int4range(1, 3)]") is not None
    assert await db.fetchval("SELECT ROW(1, 'a'::text)") == (1, "a")
