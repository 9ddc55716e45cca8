"""Leases are locked against their end: which callers hold the lease that they pass.

For writes beside the execution, such as entries of the journal. A renewal goes on meanwhile; what
would end the lease waits until the transaction ends, and then follows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.fence import LOCKED, AppliedCall, answers, held_leases
from flowfabric.errors import Refusal

LOCK_LEASES: Final[LiteralString] = (
    """
-- lifecycle.lock_leases
"""
    + held_leases()
    + LOCKED
    + """
SELECT ordinal FROM locked
"""
)


async def lock_leases(conn: Connection, leases: Sequence[Lease]) -> list[Lease | Refusal]:
    """Each lease, if it is held, or why it is not; held ones cannot end until the commit."""
    rows = await fetch_all(conn, LOCK_LEASES, AppliedCall, **fence_columns(leases))
    return await answers(conn, leases, [row.ordinal for row in rows], done=lambda lease: lease)
