"""active → terminal(cancelled): the holder itself ends the execution without a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.end import RUNG, TERMINALIZE
from flowfabric.engine.lifecycle.sql.fence import REFUSED, SEEN, Sighting, verdicts
from flowfabric.errors import Refusal
from flowfabric.ids import ExecutionId, clean_text
from flowfabric.states import PublicState

CANCEL: Final[LiteralString] = (
    """
-- lifecycle.cancel
WITH held AS (        -- what the callers believe they hold, and why they stop
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[],
                         %(attempt_index)s::integer[], %(lease_epoch)s::bigint[],
                         %(lease_id)s::uuid[], %(reason)s::text[]) WITH ORDINALITY
        AS held (held_partition, held_execution, held_attempt, held_epoch, held_lease,
                 reason, ordinal)
), """
    + SEEN
    + """, ending AS (
    SELECT seen.*, 'cancelled' AS outcome, seen.reason AS cancellation_reason,
           'worker' AS cancelled_by, NULL::text AS failure_reason, NULL::text AS failure_category,
           NULL::text AS failure_detail, NULL::bytea AS result, true AS rotates,
           'revoked' AS lease_event, 'cancelled' AS lease_reason
      FROM seen WHERE holds
), """
    + TERMINALIZE
    + REFUSED
    + "(SELECT ordinal FROM ended) AND "
    + RUNG
)


class Cancellation(msgspec.Struct, frozen=True):
    """Why the holder of `lease` stops for good."""

    lease: Lease
    reason: str


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The execution was cancelled; `repeated` when it had been before this call."""

    execution_id: ExecutionId
    public_state: PublicState = PublicState.CANCELLED
    repeated: bool = False


async def cancel(
    conn: Connection, cancellations: Sequence[Cancellation]
) -> list[Cancelled | Refusal]:
    """Cancel every execution whose lease is still held, in the order given.

    Repeated by the same holder after a lost answer, it is `Cancelled` again, with nothing written.
    """
    leases = [cancellation.lease for cancellation in cancellations]
    refused = await fetch_all(
        conn,
        CANCEL,
        Sighting,
        reason=[clean_text(cancellation.reason) for cancellation in cancellations],
        **fence_columns(leases),
    )
    return verdicts(leases, refused, done=_done, done_before=_done_before)


def _done(lease: Lease) -> Cancelled:
    return Cancelled(execution_id=lease.execution_id)


def _done_before(lease: Lease, seen: Sighting) -> Cancelled | None:
    """Cancelled while this lease was the last one, by its holder or by somebody else."""
    same_attempt = (seen.attempt_index, seen.lease_id) == (lease.attempt_index, lease.lease_id)
    if seen.terminal_outcome != "cancelled" or not same_attempt:
        return None
    return Cancelled(execution_id=lease.execution_id, repeated=True)
