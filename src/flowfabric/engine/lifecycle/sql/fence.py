"""The one fence: which callers hold the lease that they pass, and why the others do not.

A fenced statement is `held_leases()`, then `SEEN`, then its change to the rows that `holds` is true
of, then `refused()`: it answers one row for each call that changed nothing, with the execution as
it was when it was locked.
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

LOCKED_COLUMNS: Final[LiteralString] = """
           e.partition_key, e.execution_id, e.route_id, e.flow_id, e.tags, e.lifecycle_phase,
           e.terminal_outcome, e.attempt_state, e.attempt_index, e.attempt_type,
           e.attempt_started_at_ms, e.total_attempt_count, e.retry_count, e.lease_reclaim_count,
           e.infra_release_count, e.lease_epoch, e.lease_id, e.worker_id, e.worker_instance_id,
           e.delay_until_ms, e.lifecycle_phase = 'active' AS leased"""
"""What `end` and `requeue` need of a locked row of `ff.exec_core e`."""

SEEN: Final[LiteralString] = f""", seen AS (           -- each row, locked in one order
    SELECT held.*,{LOCKED_COLUMNS},
           e.lease_expires_at_ms > ff.now_ms()
           AND (e.attempt_index, e.lease_epoch, e.lease_id)
             = (held.held_attempt, held.held_epoch, held.held_lease) AS holds
      FROM held JOIN ff.exec_core e
        ON (e.partition_key, e.execution_id) = (held.held_partition, held.held_execution)
     ORDER BY e.partition_key, e.execution_id, held.ordinal FOR NO KEY UPDATE OF e
)"""
"""Follows a CTE `held`."""

SEEN_COLUMNS: Final[LiteralString] = """ordinal, lifecycle_phase, terminal_outcome, attempt_state,
       attempt_index, lease_epoch, lease_id, delay_until_ms"""
"""The columns of `SeenExecution`."""


def locked_by_id(unless: LiteralString = "") -> LiteralString:
    """`WITH seen`: the named executions, locked in one order; for statements without a fence.

    `unless` is empty, or `SKIP LOCKED` to pass over rows that another transaction has locked.
    """
    return f"""WITH named AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
        AS named (partition_key, execution_id)
), seen AS (          -- locked in one order
    SELECT{LOCKED_COLUMNS}
      FROM ff.exec_core e JOIN named USING (partition_key, execution_id)
     ORDER BY e.partition_key, e.execution_id FOR NO KEY UPDATE OF e {unless}
)"""


def held_leases(arrays: LiteralString = "", names: LiteralString = "") -> LiteralString:
    """`WITH held`: one row for each call, with the lease that its caller passes.

    `arrays` are parameters beside the lease, each cast to an array; `names` their columns.
    """
    more_arrays: LiteralString = f",\n                         {arrays}" if arrays else ""
    more_names: LiteralString = f"\n                 {names}," if names else ""
    return f"""WITH held AS (        -- the leases that the callers pass
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[],
                         %(attempt_index)s::integer[], %(lease_epoch)s::bigint[],
                         %(lease_id)s::uuid[]{more_arrays}) WITH ORDINALITY
        AS held (held_partition, held_execution, held_attempt, held_epoch, held_lease,{more_names}
                 ordinal)
)"""


def refused(changed: LiteralString) -> LiteralString:
    """The answer: the calls without a row in the CTE `changed`, as `SeenExecution`."""
    return f"""
SELECT {SEEN_COLUMNS}
  FROM held LEFT JOIN seen USING (ordinal)
 WHERE ordinal NOT IN (SELECT ordinal FROM {changed})
"""


class SeenExecution(msgspec.Struct, frozen=True):
    """The execution as the call `ordinal` found it; the phase is None if there is no execution."""

    ordinal: int
    lifecycle_phase: str | None
    terminal_outcome: str
    attempt_state: str
    attempt_index: int
    lease_epoch: int
    lease_id: UUID | None
    delay_until_ms: int | None

    def was_ended_by(self, lease: Lease) -> bool:
        """Is this the state in which the holder of `lease` gave it up?"""
        fence = (self.attempt_index, self.lease_epoch, self.lease_id)
        return fence == (lease.attempt_index, lease.lease_epoch, lease.lease_id)


def answers(
    leases: Sequence[Lease],
    refused: Sequence[SeenExecution],
    *,
    done: Callable[[Lease], D],
    done_before: Callable[[Lease, SeenExecution], D | None] = lambda _lease, _seen: None,
) -> list[D | Refusal]:
    """The answer to each call, in the order given.

    Of several calls with one lease the first decides, and all get its answer. A refused call that
    repeats what the same holder did in an earlier batch is answered by `done_before`; every other
    refused call gets its `Refusal`.
    """
    if not refused:
        return [done(lease) for lease in leases]
    by_ordinal = {seen.ordinal: seen for seen in refused}
    succeeded = {lease for number, lease in enumerate(leases, 1) if number not in by_ordinal}
    holders = {lease.execution_id: lease for lease in succeeded}
    collected: list[D | Refusal] = []
    for number, lease in enumerate(leases, 1):
        if lease in succeeded:
            collected.append(done(lease))
        else:
            seen = by_ordinal[number]
            holder = holders.get(lease.execution_id)
            if holder is not None:  # another call of this batch changed the row
                seen = _as_held(number, holder)
            before = None if seen.lifecycle_phase is None else done_before(lease, seen)
            collected.append(refusal(lease, seen) if before is None else before)
    return collected


def _as_held(ordinal: int, holder: Lease) -> SeenExecution:
    """The execution as it was when `holder` was found to hold it."""
    return SeenExecution(
        ordinal=ordinal,
        lifecycle_phase="active",
        terminal_outcome="none",
        attempt_state="running_attempt",
        attempt_index=holder.attempt_index,
        lease_epoch=holder.lease_epoch,
        lease_id=holder.lease_id,
        delay_until_ms=None,
    )


def refusal(lease: Lease, seen: SeenExecution) -> Refusal:
    """The first that applies: missing, not active, another attempt, another lease, expired."""
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
