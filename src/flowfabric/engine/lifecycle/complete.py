"""active → terminal(success): the holders' results are the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.end import RUNG, TERMINALIZE
from flowfabric.engine.lifecycle.sql.fence import REFUSED, SEEN, Sighting, verdicts
from flowfabric.errors import Refusal
from flowfabric.ids import ExecutionId

COMPLETE: Final[LiteralString] = (
    """
-- lifecycle.complete
WITH held AS (        -- what the callers believe they hold, and their results
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[],
                         %(attempt_index)s::integer[], %(lease_epoch)s::bigint[],
                         %(lease_id)s::uuid[], %(result)s::bytea[]) WITH ORDINALITY
        AS held (held_partition, held_execution, held_attempt, held_epoch, held_lease,
                 result, ordinal)
), """
    + SEEN
    + """, ending AS (
    SELECT seen.*, 'success' AS outcome, NULL::text AS failure_reason,
           NULL::text AS failure_category, NULL::text AS failure_detail,
           NULL::text AS cancellation_reason, NULL::text AS cancelled_by, false AS rotates,
           'revoked' AS lease_event, 'completed' AS lease_reason
      FROM seen WHERE holds
), """
    + TERMINALIZE
    + REFUSED
    + "(SELECT ordinal FROM ended) AND "
    + RUNG
)


class Completion(msgspec.Struct, frozen=True):
    """The result that the holder of `lease` reports."""

    lease: Lease
    result: bytes | None = None


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    """The execution ended with success; `repeated` when an earlier call of this lease did it."""

    execution_id: ExecutionId
    repeated: bool = False


async def complete(
    conn: Connection, completions: Sequence[Completion]
) -> list[Completed | Refusal]:
    """End every execution whose lease is still held, in the order given.

    A call repeated by the same holder after a lost answer is `Completed` again, with nothing
    written. A refusal never spoils its neighbours.
    """
    leases = [completion.lease for completion in completions]
    refused = await fetch_all(
        conn,
        COMPLETE,
        Sighting,
        result=[completion.result for completion in completions],
        **fence_columns(leases),
    )
    return verdicts(leases, refused, done=_done, done_before=_done_before)


def _done(lease: Lease) -> Completed:
    return Completed(execution_id=lease.execution_id)


def _done_before(lease: Lease, seen: Sighting) -> Completed | None:
    if seen.terminal_outcome != "success" or not seen.was_left_by(lease):
        return None
    return Completed(execution_id=lease.execution_id, repeated=True)
