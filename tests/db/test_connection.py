"""What the driver knows of a new connection without asking the server."""

from __future__ import annotations

import asyncio
from uuid import UUID

import asyncpg
import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.connection import ARRAYS
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection

pytestmark = pytest.mark.session("looks at what one session sends")

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
}
ECHO = f"SELECT {', '.join(f'${n}::{name}[]' for n, name in enumerate(GIVEN, 1))}"


async def test_the_arrays_are_those_of_the_server(db: Connection) -> None:
    rows = await db.fetch(
        "SELECT oid::integer, typelem::integer, typname FROM pg_type WHERE oid = ANY ($1::oid[])",
        list(ARRAYS),
    )

    known = {(each["oid"], each["elemtype"], each["name"]) for each in ARRAYS.values()}
    assert {tuple(row) for row in rows} == known


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
