"""After a test its database is made as new: rows of the test gone, real time, schema unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.config import PartitionConfig
from flowfabric.db.rows import Connection, execute, fetch_one
from flowfabric.db.store_counts import store_counts

END_CONNECTIONS: Final[LiteralString] = """
-- testing.empty_database: connections that the test left open
SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid()
   AND backend_type = 'client backend' AND (state <> 'idle' OR %(idle_too)s)
   AND pid <> ALL (%(kept)s::integer[])
"""

EMPTY: Final[LiteralString] = """
-- testing.empty_database: every row, and the clock of the test
DO $$
DECLARE
    filled text;
BEGIN
    FOR filled IN SELECT tablename FROM pg_tables
                   WHERE schemaname = 'ff' AND tablename NOT LIKE '%annotation' LOOP
        EXECUTE format('DELETE FROM ff.%I', filled);
    END LOOP;
    DROP SCHEMA IF EXISTS ff_testing CASCADE;
END
$$
"""

RUNNING_CLOCK: Final[LiteralString] = """
-- testing.empty_database: how the migrations define the clock
SELECT pg_get_functiondef('ff.now_ms()'::regprocedure) AS definition
"""

# A row that was written since has a later xmin, and for a row that is gone the count tells.
SCHEMA: Final[LiteralString] = """
-- testing.empty_database: what changes with the schema, its privileges and its settings
SELECT concat_ws(' ',
    (SELECT (count(*), max(xmin::text::bigint)) FROM pg_class WHERE relpersistence <> 't'),
    (SELECT (count(*), max(xmin::text::bigint)) FROM pg_attribute),
    (SELECT (count(*), max(xmin::text::bigint)) FROM pg_attrdef),
    (SELECT (count(*), max(xmin::text::bigint)) FROM pg_constraint),
    (SELECT (count(*), max(xmin::text::bigint)) FROM pg_trigger),
    (SELECT (count(*), max(xmin::text::bigint)) FROM pg_rewrite),
    (SELECT (count(*), max(xmin::text::bigint)) FROM pg_type),
    (SELECT (count(*), max(xmin::text::bigint)) FROM pg_extension),
    (SELECT (count(*), max(xmin::text::bigint)) FROM pg_namespace WHERE nspname !~ '^pg_.*temp'),
    (SELECT (count(*), max(xmin::text::bigint)) FROM pg_proc WHERE proname <> 'now_ms'),
    (SELECT string_agg(prosrc, ' ' ORDER BY prosrc) FROM pg_proc WHERE proname = 'now_ms'),
    (SELECT (count(*), max(xmin::text::bigint)) FROM ff.migration_annotation),
    (SELECT (count(*), max(xmin::text::bigint)) FROM ff.function_annotation),
    (SELECT (count(*), max(xmin::text::bigint)) FROM ff.role_annotation),
    (SELECT count(*) FROM pg_db_role_setting
      WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database()))
    ) AS definition
"""


class _Defined(msgspec.Struct, frozen=True):
    definition: str


class MigratedSchema(msgspec.Struct, frozen=True):
    """How a database is after its migrations."""

    clock: str
    schema: str


async def read_migrated(conn: Connection) -> MigratedSchema:
    """The definition of the running clock, and a text that any change of the schema changes."""
    clock = await fetch_one(conn, RUNNING_CLOCK, _Defined)
    schema = await fetch_one(conn, SCHEMA, _Defined)
    return MigratedSchema(clock=clock.definition, schema=schema.definition)


async def empty_database(
    conn: Connection, migrated: MigratedSchema, *, idle_too: bool, kept: Sequence[int] = ()
) -> bool:
    """No row is left, the clock runs, other connections are ended; is the schema as `migrated`?

    `idle_too`: end idle connections as well. A pooler keeps its own. `kept`: the server processes
    of connections that the next test gets.
    """
    await execute(conn, END_CONNECTIONS, idle_too=idle_too, kept=list(kept))
    await conn.execute(EMPTY)
    await conn.execute(migrated.clock)
    await store_counts(conn, PartitionConfig())
    return (await fetch_one(conn, SCHEMA, _Defined)).definition == migrated.schema
