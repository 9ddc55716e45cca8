"""Arrays that we encode ourselves are those that the driver would have sent."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.array_codecs import ARRAY_CODECS
from flowfabric.db.array_types import ARRAY_TYPES
from flowfabric.db.connection import OwnConnection
from flowfabric.db.pool import connect

ONE, TWO = uuid4(), UUID(int=2)

ARRAYS: list[tuple[str, list[Any]]] = [
    ("smallint", [0, -1, 255, 32767, -32768]),
    ("integer", [0, 0, 0]),
    ("integer", [1, None, 2**31 - 1, -(2**31)]),
    ("bigint", [2**63 - 1, -(2**63), 5, 5]),
    ("bigint", [None, None]),
    ("boolean", [True, False, None]),
    ("uuid", [ONE, TWO, ONE]),
    ("uuid", [ONE, ONE]),
    ("uuid", [None, TWO]),
    ("bytea", [b"", b"{}", bytes(5000), b"\x00\xff"]),
    ("bytea", [b"null", b"null"]),
    ("bytea", [b"x", None]),
    ("text", ["a"]),
    ("text", [None]),
    ("text", [""]),
    ("text", ["a", 'b,"{}', "ü\\", None, "NULL"]),
    ("text", ["same", "same"]),
]


@pytest.fixture
async def own(ff_dsn: str) -> AsyncGenerator[asyncpg.Connection[Any]]:
    conn = await connect(DatabaseConfig(dsn=ff_dsn), role="test")
    yield conn
    await conn.close()


@pytest.fixture
async def plain(ff_dsn: str) -> AsyncGenerator[asyncpg.Connection[Any]]:
    conn = await asyncpg.connect(ff_dsn)
    yield conn
    await conn.close()


@pytest.mark.parametrize(("name", "values"), ARRAYS)
async def test_the_server_receives_the_array_that_the_driver_sends(
    own: asyncpg.Connection[Any], plain: asyncpg.Connection[Any], name: str, values: list[Any]
) -> None:
    assert (type(own), type(plain)) == (OwnConnection, asyncpg.Connection)
    text = f"SELECT $1::{name}[]::text"

    assert await own.fetchval(text, values) == await plain.fetchval(text, values)
    assert await own.fetchval(f"SELECT $1::{name}[]", values) == values


@pytest.mark.parametrize(
    "name", ["smallint", "integer", "bigint", "boolean", "uuid", "bytea", "text"]
)
async def test_an_empty_array_and_none_stay_what_they_are(
    own: asyncpg.Connection[Any], name: str
) -> None:
    asked = f"SELECT cardinality($1::{name}[]), $1::{name}[]"

    assert tuple(await own.fetchrow(asked, []) or ()) == (0, [])
    assert tuple(await own.fetchrow(asked, None) or ()) == (None, None)
    assert await own.fetchval(f"SELECT ARRAY[]::{name}[]") == []


async def test_collections_other_than_lists_are_sent_too(own: asyncpg.Connection[Any]) -> None:
    assert await own.fetchval("SELECT $1::integer[]", (1, 2)) == [1, 2]
    assert await own.fetchval("SELECT $1::bigint[]", {7}) == [7]
    assert await own.fetchval("SELECT $1::uuid[]", {TWO: 1}.keys()) == [TWO]
    assert await own.fetchval("SELECT $1::uuid[]", [str(ONE), TWO]) == [ONE, TWO]
    assert await own.fetchval("SELECT $1::text[]", ("a", "b")) == ["a", "b"]
    assert await own.fetchval("SELECT $1::text[]", {"a"}) == ["a"]
    with pytest.raises(asyncpg.DataError):
        await own.fetchval("SELECT $1::text[]", "ab")
    assert await own.fetchval("SELECT $1::bytea[]", [bytearray(b"a"), memoryview(b"b")]) == [
        b"a",
        b"b",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("smallint", 2**15),
        ("integer", 2**31),
        ("bigint", 2**63),
        ("integer", "1"),
        ("boolean", "yes"),
        ("uuid", 7),
        ("uuid", "no uuid"),
        ("bytea", "text"),
        ("bytea", 3),
        ("text", 3),
        ("text", b"text"),
        ("text", "\ud800"),
    ],
)
async def test_an_element_of_another_type_is_refused_as_by_the_driver(
    own: asyncpg.Connection[Any], plain: asyncpg.Connection[Any], name: str, value: object
) -> None:
    for conn in (own, plain):
        for values in ([value], [value, value], [value, None]):
            with pytest.raises(asyncpg.DataError):
                await conn.fetchval(f"SELECT $1::{name}[]", values)
    assert await own.fetchval("SELECT 1") == 1, "nothing was sent"


def test_the_types_are_those_that_the_driver_is_told_of() -> None:
    assert (
        ARRAY_TYPES.items()
        >= {codec.oid: (codec.name, codec.element_oid) for codec in ARRAY_CODECS}.items()
    )
