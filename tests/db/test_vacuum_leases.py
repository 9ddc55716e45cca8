"""Short tables of leases and queue are vacuumed at once; long ones are left to the sweep."""

from flowfabric.db.rows import Connection
from flowfabric.db.vacuum_leases import vacuum_leases

VACUUMS = """
SELECT pg_stat_get_vacuum_count('ff.lease'::regclass)
     + pg_stat_get_vacuum_count('ff.ready'::regclass)
"""


async def test_tables_are_vacuumed_while_they_are_short(db: Connection) -> None:
    before = await db.fetchval(VACUUMS)

    await vacuum_leases(db, short=-1)
    assert await db.fetchval(VACUUMS) == before

    await vacuum_leases(db)
    assert await db.fetchval(VACUUMS) == before + 2
