"""active → runnable(waiting for children): the holder lets go until its children have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString, TypeAlias

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.fence import SEEN, Sighting, verdicts
from flowfabric.engine.lifecycle.sql.requeue import CALLED, RELINQUISH
from flowfabric.errors import Refusal
from flowfabric.ids import ExecutionId, GroupId
from flowfabric.states import AttemptState, GroupState, LifecyclePhase

# The groups are locked before the execution, as by whoever decides them: either a decision comes
# first and is seen here, or it finds the execution waiting.
WAIT_CHILDREN: Final[LiteralString] = (
    """
-- lifecycle.wait_children
WITH asked AS (       -- what the callers believe they hold
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[],
                         %(attempt_index)s::integer[], %(lease_epoch)s::bigint[],
                         %(lease_id)s::uuid[]) WITH ORDINALITY
        AS asked (held_partition, held_execution, held_attempt, held_epoch, held_lease, ordinal)
), grouped AS (       -- and what each would wait for
    SELECT asked.ordinal, g.group_state
      FROM unnest(%(asker)s::bigint[], %(group_id)s::uuid[]) AS named (ordinal, group_id)
      JOIN asked USING (ordinal)
      JOIN ff.edge_group g
        ON (g.partition_key, g.group_id, g.waiter_eid)
         = (asked.held_partition, named.group_id, asked.held_execution)
     ORDER BY g.partition_key, g.group_id FOR NO KEY UPDATE OF g
), decided AS (       -- open while none of them is decided
    SELECT ordinal, coalesce(min(group_state) FILTER (WHERE group_state <> 'pending'), 'pending')
               AS group_state
      FROM grouped GROUP BY ordinal
), held AS (
    SELECT asked.*, decided.group_state FROM asked LEFT JOIN decided USING (ordinal)
), """
    + SEEN
    + """, leaving AS (
    SELECT seen.*, NULL::bigint AS until_ms, 'waiting_for_children' AS waiting_for,
           'waiting_children' AS attempt_outcome, 'attempt_interrupted' AS next_attempt_state,
           false AS retries, false AS rotates, false AS loses, 'revoked' AS lease_event,
           'waiting_children' AS lease_reason, NULL::text AS failure_reason,
           NULL::text AS failure_category, NULL::text AS failure_detail
      FROM seen WHERE holds AND group_state = 'pending'
), """
    + RELINQUISH
    + """
SELECT held.ordinal, seen.lifecycle_phase, seen.terminal_outcome, seen.attempt_state,
       seen.attempt_index, seen.lease_epoch, seen.lease_id, seen.delay_until_ms,
       coalesce(seen.holds, false) AS holds, held.group_state
  FROM held LEFT JOIN seen USING (ordinal)
 WHERE held.ordinal NOT IN (SELECT ordinal FROM left_over) AND """
    + CALLED
)


class ChildWait(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of `lease` wants to wait until one of these joins is decided."""

    lease: Lease
    groups: tuple[GroupId, ...]


class WaitingChildren(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt is interrupted; it goes on, under the same index, when a wait is decided."""

    execution_id: ExecutionId


class NothingToWaitFor(msgspec.Struct, frozen=True, kw_only=True):
    """A wait is decided (or, with None, none is of this execution); the lease is still held."""

    execution_id: ExecutionId
    group_state: GroupState | None


class _Row(Sighting, frozen=True):
    holds: bool
    group_state: str | None


ChildAnswer: TypeAlias = WaitingChildren | NothingToWaitFor


async def wait_children(
    conn: Connection, waits: Sequence[ChildWait]
) -> list[ChildAnswer | Refusal]:
    """Put down every attempt whose lease is held and whose waits are open, in the order given.

    A call repeated by the same holder after a lost answer is answered as the first one was.
    """
    leases = [each.lease for each in waits]
    rows = await fetch_all(
        conn,
        WAIT_CHILDREN,
        _Row,
        asker=[asker for asker, each in enumerate(waits, 1) for _ in each.groups],
        group_id=[group.uuid for each in waits for group in each.groups],
        **fence_columns(leases),
    )
    undecided = {row.ordinal: row for row in rows}
    return verdicts(
        leases,
        rows,
        done=lambda lease: WaitingChildren(execution_id=lease.execution_id),
        done_before=lambda lease, seen: _otherwise(lease, undecided[seen.ordinal]),
    )


def _otherwise(lease: Lease, row: _Row) -> ChildAnswer | None:
    if row.holds:
        state = None if row.group_state is None else GroupState(row.group_state)
        return NothingToWaitFor(execution_id=lease.execution_id, group_state=state)
    if (
        row.was_left_by(lease)
        and row.lifecycle_phase == LifecyclePhase.RUNNABLE
        and row.attempt_state == AttemptState.ATTEMPT_INTERRUPTED
    ):
        return WaitingChildren(execution_id=lease.execution_id)
    return None
