"""How large the tables are, and how many of their rows are dead."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all

TABLE_HEALTH: Final[LiteralString] = """
-- db.table_health
SELECT s.relname::text AS table_name, pg_total_relation_size(s.relid) AS bytes,
       pg_indexes_size(s.relid) AS index_bytes, s.n_live_tup AS live_rows,
       s.n_dead_tup AS dead_rows,
       greatest(s.last_vacuum, s.last_autovacuum) AS last_vacuum_at
  FROM pg_stat_user_tables s WHERE s.schemaname = 'ff'
 ORDER BY bytes DESC, s.relname
"""


class TableHealth(msgspec.Struct, frozen=True):
    """One table: its size with indexes, and its rows as Postgres estimates them."""

    table_name: str
    bytes: int
    index_bytes: int
    live_rows: int
    dead_rows: int
    last_vacuum_at: datetime | None


async def table_health(conn: Connection) -> list[TableHealth]:
    """Every table of the engine, the largest first."""
    return await fetch_all(conn, TABLE_HEALTH, TableHealth)
