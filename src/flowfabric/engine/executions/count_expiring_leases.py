"""How many executions that a worker could run are held under leases that expire soon."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.instants import epoch_ms, instant
from flowfabric.policy import milliseconds

COUNT_EXPIRING_LEASES: Final[LiteralString] = """
-- executions.count_expiring_leases
WITH routes AS (      -- what the worker can run
    SELECT route_id FROM ff.route
     WHERE lane_id = ANY (%(lanes)s::text[]) AND namespace = %(namespace)s
       AND (%(kinds)s::text[] IS NULL OR execution_kind = ANY (%(kinds)s::text[]))
       AND required_capabilities <@ %(capabilities)s::text[]
), bound AS (
    SELECT coalesce(%(until_ms)s::bigint, ff.now_ms() + %(within_ms)s::bigint) AS until_ms
)
SELECT bound.until_ms,
       (SELECT count(*) FROM ff.lease l JOIN ff.exec_core e USING (partition_key, execution_id)
         WHERE l.lease_expires_at_ms <= bound.until_ms
           AND e.route_id IN (SELECT route_id FROM routes)) AS leases
  FROM bound
"""


class ExpiringLeases(msgspec.Struct, frozen=True, kw_only=True):
    """So many leases expire until then, unless they are renewed."""

    leases: int
    until: datetime


class _Row(msgspec.Struct, frozen=True):
    until_ms: int
    leases: int


async def count_expiring_leases(
    conn: Connection,
    claimant: Claimant,
    *,
    within: float | timedelta,
    until: datetime | None = None,
) -> ExpiringLeases:
    """How many leases on what the claimant could run expire until `until`, or else within `within`.

    Leases that have expired and were not swept yet are counted. Asked again with the `until` of the
    first answer, a lease that was renewed in between by a live holder is not counted any more.
    """
    row = await fetch_one(
        conn,
        COUNT_EXPIRING_LEASES,
        _Row,
        **claimant.route_columns(),
        within_ms=milliseconds(within, field="within"),
        until_ms=None if until is None else epoch_ms(until),
    )
    return ExpiringLeases(leases=row.leases, until=instant(row.until_ms))
