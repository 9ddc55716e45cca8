"""Writes the `ff` schema from the catalogs as SQL text, the same on every Postgres version.

`python -m flowfabric.db.schema` writes `schema.sql`, for reading the whole schema in one file; a
test compares it with the migrated database.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from pathlib import Path
from typing import Final, LiteralString

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.embedded import EmbeddedPostgres
from flowfabric.db.migrate import migrate
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection, execute, fetch_all

SCHEMA_SQL: Final = Path(__file__).with_name("schema.sql")

HEADER: Final = """\
-- The schema `ff` after all migrations and functions.
-- Written by `python -m flowfabric.db.schema`; a test compares it with the migrated database.
"""

# Names outside pg_catalog are then written with their schema, whatever search_path was.
FULL_NAMES: Final[LiteralString] = "SET LOCAL search_path = pg_catalog"

TABLES: Final[LiteralString] = """
-- db.schema: the tables
SELECT c.relname::text AS name, c.relpersistence = 'u' AS unlogged, c.reloptions AS options
  FROM pg_class c
 WHERE c.relnamespace = 'ff'::regnamespace AND c.relkind IN ('r', 'p')
 ORDER BY c.relname COLLATE "C"
"""

DOMAINS: Final[LiteralString] = """
-- db.schema: the domains, each with its constraint
SELECT format('CREATE DOMAIN ff.%%I AS %%s CONSTRAINT %%I %%s;', t.typname,
              format_type(t.typbasetype, t.typtypmod), n.conname,
              pg_get_constraintdef(n.oid)) AS text
  FROM pg_type t JOIN pg_constraint n ON n.contypid = t.oid
 WHERE t.typnamespace = 'ff'::regnamespace AND t.typtype = 'd'
 ORDER BY t.typname COLLATE "C", n.conname COLLATE "C"
"""

COLUMNS: Final[LiteralString] = """
-- db.schema: the columns, in their order
SELECT c.relname::text AS table_name, a.attname::text AS name,
       format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS required,
       pg_get_expr(d.adbin, d.adrelid) AS expression, a.attgenerated <> '' AS generated,
       CASE a.attidentity WHEN 'a' THEN 'ALWAYS' WHEN 'd' THEN 'BY DEFAULT' END AS identity
  FROM pg_class c
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
 WHERE c.relnamespace = 'ff'::regnamespace AND c.relkind IN ('r', 'p')
 ORDER BY c.relname COLLATE "C", a.attnum
"""

COLUMN_OPTIONS: Final[LiteralString] = """
-- db.schema: what the planner is told about columns
SELECT c.relname::text AS table_name, a.attname::text AS name,
       array_to_string(a.attoptions, ', ') AS definition
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = 'ff'::regnamespace AND c.relkind IN ('r', 'p')
   AND a.attoptions IS NOT NULL
 ORDER BY c.relname COLLATE "C", a.attnum
"""

# Postgres 18 lists NOT NULL among the constraints; here it is written with the column.
CONSTRAINTS: Final[LiteralString] = """
-- db.schema: the constraints, the primary key first
SELECT c.relname::text AS table_name, n.conname::text AS name,
       pg_get_constraintdef(n.oid) AS definition
  FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid
 WHERE n.connamespace = 'ff'::regnamespace AND n.contype <> 'n'
 ORDER BY c.relname COLLATE "C", n.contype <> 'p', n.conname COLLATE "C"
"""

INDEXES: Final[LiteralString] = """
-- db.schema: the indexes that belong to no constraint
SELECT t.relname::text AS table_name, c.relname::text AS name,
       pg_get_indexdef(i.indexrelid) AS definition
  FROM pg_index i
  JOIN pg_class c ON c.oid = i.indexrelid
  JOIN pg_class t ON t.oid = i.indrelid
 WHERE t.relnamespace = 'ff'::regnamespace
   AND NOT EXISTS (SELECT FROM pg_constraint n
                    WHERE n.conindid = i.indexrelid AND n.contype IN ('p', 'u', 'x'))
 ORDER BY t.relname COLLATE "C", c.relname COLLATE "C"
"""

VIEWS: Final[LiteralString] = """
-- db.schema: the views
SELECT c.relname::text AS table_name, c.relname::text AS name, pg_get_viewdef(c.oid) AS definition
  FROM pg_class c
 WHERE c.relnamespace = 'ff'::regnamespace AND c.relkind = 'v'
 ORDER BY c.relname COLLATE "C"
"""

COMMENTS: Final[LiteralString] = """
-- db.schema: the comments on tables, views and columns
SELECT c.relname::text AS table_name, coalesce(a.attname::text, '') AS name,
       format('COMMENT ON %%s %%s IS %%L;',
              CASE WHEN a.attname IS NOT NULL THEN 'COLUMN'
                   WHEN c.relkind = 'v' THEN 'VIEW' ELSE 'TABLE' END,
              concat_ws('.', c.oid::regclass, a.attname), d.description) AS definition
  FROM pg_class c
  JOIN pg_description d ON (d.objoid, d.classoid) = (c.oid, 'pg_class'::regclass)
  LEFT JOIN pg_attribute a ON (a.attrelid, a.attnum) = (c.oid, d.objsubid) AND d.objsubid > 0
 WHERE c.relnamespace = 'ff'::regnamespace AND c.relkind IN ('r', 'p', 'v')
 ORDER BY c.relname COLLATE "C", d.objsubid
"""

ROUTINES: Final[LiteralString] = """
-- db.schema: functions and triggers
SELECT rtrim(pg_get_functiondef(p.oid), E'\\n') || ';' AS text
  FROM pg_proc p WHERE p.pronamespace = 'ff'::regnamespace AND p.prokind IN ('f', 'p')
 UNION ALL
SELECT pg_get_triggerdef(g.oid) || ';'
  FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid
 WHERE c.relnamespace = 'ff'::regnamespace AND NOT g.tgisinternal
"""

_ONE_TABLE: Final = re.compile(r"\n +FROM ff\.(\w+)(?: (\w+))?(?:\n|;)")


class _Table(msgspec.Struct, frozen=True):
    name: str
    unlogged: bool
    options: list[str] | None


class _Column(msgspec.Struct, frozen=True):
    table_name: str
    name: str
    type: str
    required: bool
    expression: str | None
    generated: bool
    identity: str | None

    def __str__(self) -> str:
        words = [self.name, self.type]
        if self.identity is not None:
            words.append(f"GENERATED {self.identity} AS IDENTITY")
        elif self.generated:
            words.append(f"GENERATED ALWAYS AS ({self.expression}) STORED")
        elif self.expression is not None:
            words.append(f"DEFAULT {self.expression}")
        if self.required:
            words.append("NOT NULL")
        return " ".join(words)


class _Part(msgspec.Struct, frozen=True):
    table_name: str
    name: str
    definition: str


class _Text(msgspec.Struct, frozen=True):
    text: str


async def describe_schema(conn: Connection) -> str:
    """Everything in the schema `ff`, as SQL in one fixed order."""
    async with conn.transaction(readonly=True):
        await execute(conn, FULL_NAMES)
        domains = [f"\n{domain.text}\n" for domain in await fetch_all(conn, DOMAINS, _Text)]
        lines: defaultdict[str, list[str]] = defaultdict(list)
        for column in await fetch_all(conn, COLUMNS, _Column):
            lines[column.table_name].append(str(column))
        for constraint in await fetch_all(conn, CONSTRAINTS, _Part):
            lines[constraint.table_name].append(
                f"CONSTRAINT {constraint.name} {constraint.definition}"
            )
        indexes: defaultdict[str, list[str]] = defaultdict(list)
        for index in await fetch_all(conn, INDEXES, _Part):
            indexes[index.table_name].append(f"{index.definition};\n")
        for column in await fetch_all(conn, COLUMN_OPTIONS, _Part):
            indexes[column.table_name].append(
                f"ALTER TABLE ff.{column.table_name} ALTER COLUMN {column.name}"
                f" SET ({column.definition});\n"
            )
        comments: defaultdict[str, str] = defaultdict(str)
        for comment in await fetch_all(conn, COMMENTS, _Part):
            comments[comment.table_name] += f"{comment.definition}\n"
        tables = [
            f"\n{_create(table, lines[table.name])}"
            f"{''.join(indexes[table.name])}{comments[table.name]}"
            for table in await fetch_all(conn, TABLES, _Table)
        ]
        views = [
            f"\nCREATE VIEW ff.{view.name} AS\n{_same_on_every_version(view.definition)}\n"
            f"{comments[view.name]}"
            for view in await fetch_all(conn, VIEWS, _Part)
        ]
        routines = sorted(
            f"\n{routine.text}\n" for routine in await fetch_all(conn, ROUTINES, _Text)
        )
    return HEADER + "".join(domains + tables + views + routines)


def _create(table: _Table, lines: list[str]) -> str:
    kind = "UNLOGGED TABLE" if table.unlogged else "TABLE"
    options = f" WITH ({', '.join(sorted(table.options))})" if table.options else ""
    return f"CREATE {kind} ff.{table.name} (\n    " + ",\n    ".join(lines) + f"\n){options};\n"


def _same_on_every_version(view: str) -> str:
    """Remove the table name before columns, which Postgres 15 writes even with one table."""
    found = _ONE_TABLE.search(view)
    if found is None:
        return view
    return re.sub(rf"(?<![\w.]){found[2] or found[1]}\.", "", view)


async def write_schema() -> None:
    """Migrate an empty database and write its schema to `schema.sql`."""
    with EmbeddedPostgres.start() as postgres:
        await migrate(postgres.dsn)
        conn = await connect(DatabaseConfig(dsn=postgres.dsn), role="schema")
        try:
            text = await describe_schema(conn)
        finally:
            await conn.close()
    SCHEMA_SQL.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(write_schema())
