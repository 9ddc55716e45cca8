"""The leases and the queue are vacuumed while they are short, by the worker that ends leases.

A lease and a place in the queue are rows for a moment: each leaves a dead row, and a table of dead
rows grows with every execution. Vacuumed every few thousand, the same pages are used again. That
takes about 1 % of what the executions cost. The counts of dead rows, which `vacuum_queue` looks at,
are up to a second old; a worker ends twenty thousand leases in a second.
"""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.faults import translated
from flowfabric.db.rows import Connection, fetch_one

SHORT: Final = 4 * 1024 * 1024
"""Bytes of a table that is vacuumed here; a longer one is left to `vacuum_queue`.

A queue is long because much is queued, and the leases are long while an old transaction may still
see the dead ones: then a vacuum reads much and removes little.
"""

VACUUM_LEASES: Final[LiteralString] = """
-- db.vacuum_leases
SELECT pg_has_role(relowner, 'USAGE') AND pg_relation_size('ff.lease') <= %(short)s::bigint
           AS leases,
       pg_has_role(relowner, 'USAGE') AND pg_relation_size('ff.ready') <= %(short)s::bigint
           AS queue
  FROM pg_class WHERE oid = 'ff.lease'::regclass
"""


class _Short(msgspec.Struct, frozen=True):
    leases: bool
    queue: bool


async def vacuum_leases(conn: Connection, *, short: int = SHORT) -> None:
    """The dead rows of `ff.lease` and `ff.ready` are removed, of each if it is short.

    Only the owner of the tables can do so; nothing happens for another role. The connection must
    not be in a transaction. A table that is being vacuumed is left alone.
    """
    found = await fetch_one(conn, VACUUM_LEASES, _Short, short=short)
    with translated("-- db.vacuum_leases\n", conn):
        if found.leases:
            await conn.execute("VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) ff.lease")
        if found.queue:
            await conn.execute("VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) ff.ready")
