"""Statements in, typed rows out."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from flowfabric.db.rows import Connection, execute, fetch_all, fetch_maybe, fetch_one, positional
from flowfabric.errors import ValidationError
from tests.all_cases import all_cases


class Pair(msgspec.Struct, frozen=True):
    number: int
    word: str | None


@all_cases(
    ("named", "numbered", "names"),
    [
        ("SELECT 1", "SELECT 1", ()),
        ("SELECT %(a)s", "SELECT $1", ("a",)),
        ("SELECT %(a)s, %(b)s, %(a)s", "SELECT $1, $2, $1", ("a", "b")),
        ("SELECT %(b)s::text[], %(a)s", "SELECT $1::text[], $2", ("b", "a")),
        ("SELECT %(ttl_ms)s + %(ttl)s", "SELECT $1 + $2", ("ttl_ms", "ttl")),
        ("SELECT 5 %% 2, 'a%%'", "SELECT 5 % 2, 'a%'", ()),
        ("SELECT $$%(a)s$$, '%s'", "SELECT $$$1$$, '%s'", ("a",)),
    ],
)
def test_names_become_numbers_in_the_order_they_appear(
    named: str, numbered: str, names: tuple[str, ...]
) -> None:
    assert positional(named) == (numbered, names)


def test_more_than_nine_names_keep_their_own_number() -> None:
    text, names = positional(" ".join(f"%(p{number})s" for number in range(12)))

    assert text == " ".join(f"${number + 1}" for number in range(12))
    assert names[11] == "p11"


async def test_rows_come_back_typed_and_in_order(db: Connection) -> None:
    rows = await fetch_all(
        db,
        "SELECT n AS number, %(word)s::text AS word FROM generate_series(1, %(upto)s) AS n",
        Pair,
        upto=3,
        word="x",
    )

    assert rows == [Pair(1, "x"), Pair(2, "x"), Pair(3, "x")]


async def test_no_rows_are_an_empty_list_and_none(db: Connection) -> None:
    nothing = "SELECT 1 AS number, 'x' AS word WHERE false"

    assert await fetch_all(db, nothing, Pair) == []
    assert await fetch_maybe(db, nothing, Pair) is None
    with pytest.raises(ValueError, match="not enough values"):
        await fetch_one(db, nothing, Pair)


async def test_one_row_is_itself(db: Connection) -> None:
    one = "SELECT 7 AS number, NULL::text AS word"

    assert await fetch_one(db, one, Pair) == await fetch_maybe(db, one, Pair) == Pair(7, None)


async def test_two_rows_are_not_one(db: Connection) -> None:
    with pytest.raises(ValueError, match="too many values"):
        await fetch_one(db, "SELECT n AS number, '' AS word FROM generate_series(1, 2) AS n", Pair)


async def test_columns_that_are_not_the_fields_are_a_bug(db: Connection) -> None:
    for columns in ("'x' AS word, 1 AS number", "1 AS number", "1 AS number, 'x' AS other"):
        with pytest.raises(AssertionError, match="Pair"):
            await fetch_all(db, f"SELECT {columns}", Pair)  # pyright: ignore[reportArgumentType]


async def test_a_parameter_that_is_missing_is_a_bug(db: Connection) -> None:
    with pytest.raises(KeyError, match="word"):
        await fetch_all(db, "SELECT 1 AS number, %(word)s::text AS word", Pair)


async def test_values_are_bound_and_never_part_of_the_text(db: Connection) -> None:
    hostile = "'; DROP TABLE ff.route; -- %(word)s $1"

    row = await fetch_one(db, "SELECT 1 AS number, %(word)s::text AS word", Pair, word=hostile)

    assert row.word == hostile
    assert await db.fetchval("SELECT to_regclass('ff.route') IS NOT NULL")


async def test_a_value_of_the_wrong_type_is_invalid_input(db: Connection) -> None:
    with pytest.raises(ValidationError) as error:
        await execute(db, "\n-- lanes.seed\nSELECT %(id)s::uuid", id="not a uuid")

    assert error.value.code == "invalid_input"
    assert "lanes.seed" in error.value.detail


async def test_execute_runs_for_its_effect(db: Connection) -> None:
    await execute(
        db,
        "INSERT INTO ff.lane_registry VALUES (%(lane)s, %(at)s, %(lane)s)",
        lane="blue",
        at=5,
    )

    assert [tuple(row)[:3] for row in await db.fetch("SELECT * FROM ff.lane_registry")] == [
        ("blue", 5, "blue")
    ]


async def test_a_statement_runs_the_same_way_with_another_row_type(db: Connection) -> None:
    class Id(msgspec.Struct, frozen=True):
        id: UUID

    sql = "SELECT '550e8400-e29b-41d4-a716-446655440000'::uuid AS id"

    assert (await fetch_one(db, sql, Id)).id == UUID("550e8400-e29b-41d4-a716-446655440000")
    with pytest.raises(AssertionError):
        await fetch_one(db, sql, Pair)
