"""What is true of the queue between any two transactions."""

from __future__ import annotations

from collections import Counter

from flowfabric.db.rows import Connection

COLUMNS = (
    "e.partition_key, e.execution_id, e.route_id, e.priority, e.created_at_ms, e.deadline_at_ms"
)
CLAIMABLE = f"SELECT {COLUMNS} FROM ff.exec_core e WHERE e.eligibility_state = 'eligible_now'"
READY = f"SELECT {COLUMNS} FROM ff.ready e"
LEASED = f"""
SELECT {COLUMNS} FROM ff.lease l JOIN ff.exec_core e
    ON (e.partition_key, e.execution_id, e.lease_epoch)
     = (l.partition_key, l.execution_id, l.lease_epoch - 1)
"""


async def check_queue(db: Connection) -> None:
    """An execution that is `eligible_now` is queued or leased, never both; no other one is."""
    claimable = Counter(tuple(row) for row in await db.fetch(CLAIMABLE))
    ready = Counter(tuple(row) for row in await db.fetch(READY))
    leased = Counter(tuple(row) for row in await db.fetch(LEASED))
    assert leased.total() == await db.fetchval("SELECT count(*) FROM ff.lease")
    assert ready + leased == claimable
