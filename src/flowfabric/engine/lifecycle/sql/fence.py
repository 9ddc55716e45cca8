"""The one fence: which callers still hold what they believe they hold, and why the others do not.

A fenced statement is `held` (its own input: the columns `held_*` and an ordinal), then `SEEN`, then
its change to whatever `holds`, then `REFUSED`: it answers one row for each call that changed
nothing, with the execution as it stood.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, LiteralString, TypeVar
from uuid import UUID

import msgspec

from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import ExecutionNotActive, LeaseExpired, NotFound, Refusal, StaleLease
from flowfabric.ids import attempt_id

D = TypeVar("D")

# The columns that endings and hand-backs work from.
STANDING: Final[LiteralString] = """
           e.partition_key, e.execution_id, e.route_id, e.flow_id, e.tags, e.lifecycle_phase,
           e.terminal_outcome, e.attempt_state, e.attempt_index, e.attempt_type,
           e.attempt_started_at_ms, e.total_attempt_count, e.retry_count, e.lease_reclaim_count,
           e.lease_epoch, e.lease_id, e.worker_id, e.worker_instance_id, e.delay_until_ms,
           e.lifecycle_phase = 'active' AS leased"""

HELD: Final[LiteralString] = """WITH held AS (        -- what the callers believe they hold
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[],
                         %(attempt_index)s::integer[], %(lease_epoch)s::bigint[],
                         %(lease_id)s::uuid[]) WITH ORDINALITY
        AS held (held_partition, held_execution, held_attempt, held_epoch, held_lease, ordinal)
), """
"""The input of a fenced statement that takes nothing beside the leases."""

SEEN: Final[LiteralString] = (
    """seen AS (             -- each with the row as it stands, locked in one order
    SELECT held.*,"""
    + STANDING
    + """,
           e.lease_expires_at_ms > ff.now_ms()
           AND (e.attempt_index, e.lease_epoch, e.lease_id)
             = (held.held_attempt, held.held_epoch, held.held_lease) AS holds
      FROM held JOIN ff.exec_core e
        ON (e.partition_key, e.execution_id) = (held.held_partition, held.held_execution)
     ORDER BY e.partition_key, e.execution_id FOR NO KEY UPDATE OF e
)"""
)

REFUSED: Final[LiteralString] = """
SELECT held.ordinal, seen.lifecycle_phase, seen.terminal_outcome, seen.attempt_state,
       seen.attempt_index, seen.lease_epoch, seen.lease_id, seen.delay_until_ms
  FROM held LEFT JOIN seen USING (ordinal)
 WHERE held.ordinal NOT IN """


class Sighting(msgspec.Struct, frozen=True):
    """An execution as the call `ordinal` saw it; its phase is None where there is none."""

    ordinal: int
    lifecycle_phase: str | None
    terminal_outcome: str
    attempt_state: str
    attempt_index: int
    lease_epoch: int
    lease_id: UUID | None
    delay_until_ms: int | None

    def was_left_by(self, lease: Lease) -> bool:
        """Did this very lease end here, and nothing happen since?"""
        fence = (self.attempt_index, self.lease_epoch, self.lease_id)
        return fence == (lease.attempt_index, lease.lease_epoch, lease.lease_id)


def verdicts(
    leases: Sequence[Lease],
    refused: Sequence[Sighting],
    *,
    done: Callable[[Lease], D],
    done_before: Callable[[Lease, Sighting], D | None] = lambda _lease, _seen: None,
) -> list[D | Refusal]:
    """What each call is told, in the order given.

    A refused call of a holder who had done the same before (in this batch or an earlier one) hears
    that it is done; every other hears why not.
    """
    if not refused:
        return [done(lease) for lease in leases]
    by_ordinal = {sighting.ordinal: sighting for sighting in refused}
    succeeded = {lease for number, lease in enumerate(leases, 1) if number not in by_ordinal}
    holders = {lease.execution_id: lease for lease in succeeded}
    answers: list[D | Refusal] = []
    for number, lease in enumerate(leases, 1):
        if lease in succeeded:
            answers.append(done(lease))
        else:
            seen = by_ordinal[number]
            holder = holders.get(lease.execution_id)
            if holder is not None:  # a row that this statement has changed is not seen again
                seen = _as_held(number, holder)
            before = None if seen.lifecycle_phase is None else done_before(lease, seen)
            answers.append(refusal(lease, seen) if before is None else before)
    return answers


def _as_held(ordinal: int, holder: Lease) -> Sighting:
    """The execution as it stood when `holder` was found to hold it."""
    return Sighting(
        ordinal=ordinal,
        lifecycle_phase="active",
        terminal_outcome="none",
        attempt_state="running_attempt",
        attempt_index=holder.attempt_index,
        lease_epoch=holder.lease_epoch,
        lease_id=holder.lease_id,
        delay_until_ms=None,
    )


def refusal(lease: Lease, seen: Sighting) -> Refusal:
    """The first that holds: missing, not active, another attempt, another lease, run out."""
    if seen.lifecycle_phase is None:
        return NotFound("execution", lease.execution_id)
    if seen.lifecycle_phase != "active":
        return ExecutionNotActive(
            lease.execution_id,
            lifecycle_phase=seen.lifecycle_phase,
            terminal_outcome=seen.terminal_outcome,
            lease_epoch=seen.lease_epoch,
            attempt_id=attempt_id(lease.execution_id, seen.attempt_index),
        )
    if lease.attempt_index > seen.attempt_index:
        return NotFound("attempt", f"{lease.attempt_index} of {lease.execution_id}")
    if (
        lease.attempt_index != seen.attempt_index
        or lease.lease_epoch != seen.lease_epoch
        or lease.lease_id != seen.lease_id
    ):
        return StaleLease(lease.execution_id, held=lease.lease_epoch, current=seen.lease_epoch)
    return LeaseExpired(lease.execution_id, lease_epoch=lease.lease_epoch)
