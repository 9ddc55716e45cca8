"""Leases that were lost: how long until somebody else had them, and what cost them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import asyncpg
import msgspec

_ORPHANS: Final = """
SELECT lost.execution_id, lost.lease_epoch, lost.worker_instance_id AS instance,
       taken.occurred_at_ms AS taken_at_ms, lost.occurred_at_ms AS lost_at_ms,
       kept.first_ms AS held_from_ms, kept.last_ms AS renewed_at_ms
  FROM ff.lease_event lost
  CROSS JOIN LATERAL (
       SELECT min(k.occurred_at_ms) AS first_ms, max(k.occurred_at_ms) AS last_ms
         FROM ff.lease_event k
        WHERE k.execution_id = lost.execution_id AND k.lease_id = lost.lease_id
          AND k.event_type IN ('acquired', 'renewed')) AS kept
  LEFT JOIN LATERAL (
       SELECT t.occurred_at_ms FROM ff.lease_event t
        WHERE t.execution_id = lost.execution_id AND t.event_id > lost.event_id
          AND t.event_type = 'acquired' ORDER BY t.event_id LIMIT 1) AS taken ON true
 WHERE lost.event_type = 'expired'
"""

Windows = Sequence[tuple[int, int]]
"""From when to when, in milliseconds since the epoch."""


class Orphan(msgspec.Struct, frozen=True):
    """An execution whose holder did not come back in time."""

    execution_id: Any
    lease_epoch: int
    instance: str
    taken_at_ms: int | None
    lost_at_ms: int
    held_from_ms: int
    renewed_at_ms: int

    def waited_ms(self, outages: Windows) -> int:
        """From the last renewal to the next claim, without the time in which Postgres was down."""
        until = self.taken_at_ms
        if until is None:
            return 2**31
        return until - self.renewed_at_ms - _overlap(self.renewed_at_ms, until, outages)

    def meets(self, windows: Windows) -> bool:
        """Did any of these happen while the lease was given out, held or about to be lost?"""
        begins = self.held_from_ms - 1000
        return any(began <= self.lost_at_ms and ended >= begins for began, ended in windows)


async def orphans(db: asyncpg.Connection[Any]) -> list[Orphan]:
    """Every lease of the run that ran out."""
    return [Orphan(**dict(row)) for row in await db.fetch(_ORPHANS)]


def _overlap(begins: int, ends: int, windows: Windows) -> int:
    return sum(max(0, min(ends, end) - max(begins, begin)) for begin, end in windows)
