"""active → runnable: the holder hands the execution back, unharmed and uncounted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.fence import HELD, REFUSED, SEEN, Sighting, verdicts
from flowfabric.engine.lifecycle.sql.requeue import CALLED, RELINQUISH
from flowfabric.errors import Refusal
from flowfabric.ids import ExecutionId

RELEASE: Final[LiteralString] = (
    """
-- lifecycle.release
"""
    + HELD
    + SEEN
    + """, leaving AS (
    SELECT seen.*, NULL::bigint AS until_ms, 'waiting_for_worker' AS waiting_for,
           'lease_revoked' AS attempt_outcome, 'attempt_interrupted' AS next_attempt_state,
           false AS retries, true AS rotates, false AS loses, 'revoked' AS lease_event,
           'released' AS lease_reason, NULL::text AS failure_reason,
           NULL::text AS failure_category, NULL::text AS failure_detail
      FROM seen WHERE holds
), """
    + RELINQUISH
    + REFUSED
    + "(SELECT ordinal FROM left_over) AND "
    + CALLED
)


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """The execution is claimable again at once, by anybody."""

    execution_id: ExecutionId


async def release(conn: Connection, leases: Sequence[Lease]) -> list[Released | Refusal]:
    """Hand back every execution whose lease is still held, in the order given.

    The same attempt goes on with the next claim; neither retries nor reclaims are counted.
    """
    refused = await fetch_all(conn, RELEASE, Sighting, **fence_columns(leases))
    return verdicts(leases, refused, done=_done)


def _done(lease: Lease) -> Released:
    return Released(execution_id=lease.execution_id)
