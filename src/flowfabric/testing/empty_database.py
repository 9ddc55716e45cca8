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

# The function keeps the plans of its statements: to plan all of them takes longer than to run them.
DEFINE_EMPTY: Final[LiteralString] = """
-- testing.empty_database: a function of this session, with a statement for each table
DO $do$
BEGIN
    EXECUTE (
        SELECT format($$CREATE OR REPLACE FUNCTION pg_temp.empty_database(clock text) RETURNS bigint
                        LANGUAGE plpgsql AS $body$
                        DECLARE
                            rows bigint;
                            deleted bigint := 0;
                        BEGIN
                            %s
                            DROP SCHEMA IF EXISTS ff_testing CASCADE;
                            IF pg_get_functiondef('ff.now_ms()'::regprocedure) <> clock THEN
                                EXECUTE clock;
                            END IF;
                            RETURN deleted;
                        END $body$ $$,
                      string_agg(format('DELETE FROM ff.%I; GET DIAGNOSTICS rows = ROW_COUNT;'
                                        ' deleted := deleted + rows;', tablename), ' '))
          FROM pg_tables WHERE schemaname = 'ff' AND tablename NOT LIKE '%annotation'
    );
END
$do$
"""

EMPTY: Final[LiteralString] = """
-- testing.empty_database: every row, and the clock of the test
SELECT pg_temp.empty_database(%(clock)s) AS deleted
"""

RUNNING_CLOCK: Final[LiteralString] = """
-- testing.empty_database: how the migrations define the clock
SELECT pg_get_functiondef('ff.now_ms()'::regprocedure) AS definition
"""

LAST_TRANSACTION: Final[LiteralString] = """
-- testing.empty_database: what is written later has a later transaction
SELECT pg_current_xact_id()::xid::text AS definition
"""

# For a row that is gone the count tells. Numbers below 16384 are those of objects of Postgres.
SCHEMA: Final[LiteralString] = """
-- testing.empty_database: what changes with the schema, its privileges and its settings
WITH defined (written_by) AS (
    SELECT xmin FROM pg_class WHERE oid >= 16384 AND relpersistence <> 't'
    UNION ALL SELECT xmin FROM pg_attribute WHERE attrelid >= 16384
    UNION ALL SELECT xmin FROM pg_attrdef
    UNION ALL SELECT xmin FROM pg_constraint
    UNION ALL SELECT xmin FROM pg_trigger
    UNION ALL SELECT xmin FROM pg_rewrite WHERE oid >= 16384
    UNION ALL SELECT xmin FROM pg_type WHERE oid >= 16384
    UNION ALL SELECT xmin FROM pg_extension
    UNION ALL SELECT xmin FROM pg_namespace WHERE nspname !~ '^pg_.*temp'
    UNION ALL SELECT xmin FROM pg_proc
               WHERE oid >= 16384 AND proname <> 'now_ms' AND pronamespace <> pg_my_temp_schema()
    UNION ALL SELECT xmin FROM ff.migration_annotation
    UNION ALL SELECT xmin FROM ff.function_annotation
    UNION ALL SELECT xmin FROM ff.role_annotation
)
SELECT concat_ws(' ',
    count(*), count(*) FILTER (WHERE age(written_by) < age(%(last_transaction)s::text::xid)),
    (SELECT string_agg(prosrc, ' ' ORDER BY prosrc) FROM pg_proc WHERE proname = 'now_ms'),
    (SELECT count(*) FROM pg_db_role_setting
      WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database()))
    ) AS definition FROM defined
"""


MANY: Final = 5000
"""So many deleted rows slow the next tests down until they are vacuumed."""


class _Emptied(msgspec.Struct, frozen=True):
    deleted: int


class _Defined(msgspec.Struct, frozen=True):
    definition: str


class MigratedSchema(msgspec.Struct, frozen=True):
    """How a database is after its migrations."""

    clock: str
    last_transaction: str
    schema: str


async def read_migrated(conn: Connection) -> MigratedSchema:
    """The definition of the running clock, and a text that any change of the schema changes."""
    clock = await _read(conn, RUNNING_CLOCK)
    last = await _read(conn, LAST_TRANSACTION)
    schema = await _read(conn, SCHEMA, last_transaction=last)
    return MigratedSchema(clock=clock, last_transaction=last, schema=schema)


async def prepare_to_empty(conn: Connection) -> None:
    """Once for a session that calls `empty_database`: it knows the tables that there are."""
    await conn.execute(DEFINE_EMPTY)


async def empty_database(
    conn: Connection, migrated: MigratedSchema, *, idle_too: bool, kept: Sequence[int] = ()
) -> bool:
    """No row is left, the clock runs, other connections are ended; is the database as new?

    It is not if its schema is not as `migrated`, or if it had `MANY` rows. `idle_too`: end idle
    connections as well. A pooler keeps its own. `kept`: the server processes of connections that
    the next test gets.
    """
    await execute(conn, END_CONNECTIONS, idle_too=idle_too, kept=list(kept))
    emptied = await fetch_one(conn, EMPTY, _Emptied, clock=migrated.clock)
    await store_counts(conn, PartitionConfig())
    schema = await _read(conn, SCHEMA, last_transaction=migrated.last_transaction)
    return schema == migrated.schema and emptied.deleted < MANY


async def _read(conn: Connection, sql: LiteralString, **values: str) -> str:
    return (await fetch_one(conn, sql, _Defined, **values)).definition
