"""The SQL page: its statements run, and its table is the function's signature."""

from __future__ import annotations

import pytest

from flowfabric import Client, PublicState
from flowfabric.db.rows import Connection
from tests.docs.conftest import Reader
from tests.docs.pages import quoted, rows, sections

SQL = "docs/reference/sql.md"

SIGNATURE = """
SELECT parameter_name AS name, p.data_type || coalesce(e.suffix, '') AS type,
       parameter_default AS default
  FROM information_schema.parameters p
  JOIN information_schema.routines r USING (specific_schema, specific_name)
  LEFT JOIN (VALUES ('ARRAY', '')) AS e (data_type, suffix) ON e.data_type = p.data_type
 WHERE r.routine_schema = 'ff' AND r.routine_name = $1 AND p.parameter_mode = 'IN'
 ORDER BY p.ordinal_position
"""


@pytest.fixture
def page(reader: Reader) -> Reader:
    reader.opens(SQL)
    return reader


async def test_submit_submits(page: Reader, client: Client) -> None:
    [(first,)] = await page.sql("submit")
    [(again,)] = await page.sql("submit")
    [(other,)] = await page.sql("submit-policy")

    snapshot = await client.describe(first)
    assert first == again != other
    assert (snapshot.lane_id, snapshot.public_state) == ("payments", PublicState.DELAYED)
    assert snapshot.tags == {"shop.tenant": "acme"}


async def test_the_statements_for_looking_answer(page: Reader) -> None:
    await page.sql("submit-policy")

    assert [tuple(row) for row in await page.sql("waiting")] == [("default", "fetch", 1)]
    assert [row["public_state"] for row in await page.sql("now")] == ["waiting"]
    assert await page.sql("failures") == []


@pytest.mark.parametrize("function", ["submit", "record_entry"])
async def test_the_arguments_are_those_of_the_function(db: Connection, function: str) -> None:
    stored = await db.fetch(SIGNATURE, function)
    written = [
        (quoted(name)[0], quoted(kind)[0], quoted(default))
        for name, kind, default, _ in rows(sections(SQL, 2)[f"ff.{function}"])
    ]

    assert [name for name, _, _ in written] == [row["name"] for row in stored]
    for (_, kind, default), row in zip(written, stored, strict=True):
        assert row["type"] == ("ARRAY" if kind == "text[]" else kind)
        assert (row["default"] or "").split("::")[0] == (default[0] if default else "")


async def test_every_function_is_named(db: Connection) -> None:
    functions = await db.fetch(
        "SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'ff'::regnamespace"
    )
    named = {word.removeprefix("ff.") for word in quoted(" ".join(sections_text()))}

    assert {row["proname"] for row in functions} <= named | set(headings())


def headings() -> list[str]:
    return [title.removeprefix("ff.") for title in sections(SQL, 2)]


def sections_text() -> list[str]:
    return list(sections(SQL, 2).values())
