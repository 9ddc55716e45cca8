"""The whole database as one hash per table: equal before and after means that nothing changed."""

from __future__ import annotations

from flowfabric.db.rows import Connection

TABLES = """
SELECT relname FROM pg_class
 WHERE relnamespace = 'ff'::regnamespace AND relkind = 'r' ORDER BY relname
"""
HASH = """
SELECT md5(coalesce(string_agg(line, E'\\n' ORDER BY line), ''))
  FROM (SELECT concat_ws(' ', {version} t::text) AS line FROM ff.{table} t) AS lines
"""


async def fingerprint(db: Connection, *, versions: bool = True) -> dict[str, str]:
    """A hash of every row of every table of the schema.

    With `versions` it covers where a row lies and which transaction wrote it: a row that was
    written again with the same values has changed then.
    """
    version = "t.ctid, t.xmin," if versions else ""
    return {
        table: await db.fetchval(HASH.format(table=table, version=version))
        for table in await tables(db)
    }


async def tables(db: Connection) -> list[str]:
    """Every table of the schema."""
    return [row["relname"] for row in await db.fetch(TABLES)]


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The tables that differ."""
    return sorted(
        table for table in before.keys() | after.keys() if before.get(table) != after.get(table)
    )
