"""`schema.sql` is what the migrations and functions leave, and says what tables are for."""

from __future__ import annotations

import pytest

from flowfabric.db.rows import Connection
from flowfabric.db.schema import SCHEMA_SQL, describe_schema

pytestmark = pytest.mark.session("sets the search path of its session")


async def test_the_written_schema_equals_the_migrated_one(db: Connection) -> None:
    described = await describe_schema(db)

    assert SCHEMA_SQL.read_text(encoding="utf-8") == described, "run python -m flowfabric.db.schema"


async def test_the_description_does_not_depend_on_the_session(db: Connection) -> None:
    described = await describe_schema(db)
    await db.execute("SET search_path = ff, public")

    assert await describe_schema(db) == described
    assert await db.fetchval("SHOW search_path") == "ff, public"


async def test_every_kind_of_change_shows(db: Connection) -> None:
    seen = [await describe_schema(db)]
    for change in (
        "ALTER TABLE ff.route ADD COLUMN note text",
        "ALTER TABLE ff.route ALTER COLUMN note SET DEFAULT 'x'",
        "ALTER TABLE ff.route ALTER COLUMN note SET NOT NULL",
        "ALTER TABLE ff.route ADD CONSTRAINT route_note CHECK (note <> '')",
        "CREATE INDEX route_note ON ff.route (note)",
        "ALTER TABLE ff.route SET (fillfactor = 77)",
        "ALTER TABLE ff.route SET UNLOGGED",
        "CREATE TABLE ff.extra (id bigint GENERATED ALWAYS AS IDENTITY)",
        "ALTER TABLE ff.extra ADD UNIQUE (id)",
        "CREATE FUNCTION ff.extra() RETURNS integer LANGUAGE sql RETURN 1",
        "CREATE OR REPLACE FUNCTION ff.extra() RETURNS integer LANGUAGE sql RETURN 2",
        "CREATE VIEW ff.seen AS SELECT 1 AS one",
        "COMMENT ON TABLE ff.extra IS 'more'",
        "COMMENT ON COLUMN ff.extra.id IS 'its number'",
        "COMMENT ON VIEW ff.seen IS 'a look'",
        "CREATE TRIGGER touched BEFORE UPDATE ON ff.extra FOR EACH ROW"
        " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    ):
        await db.execute(change)
        described = await describe_schema(db)
        assert described not in seen, change
        seen.append(described)


async def test_every_table_and_view_says_what_it_is_for(db: Connection) -> None:
    silent = await db.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'ff'::regnamespace"
        " AND relkind IN ('r', 'p', 'v') AND obj_description(oid, 'pg_class') IS NULL"
    )

    assert [row["relname"] for row in silent] == []
