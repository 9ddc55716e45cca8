"""active → runnable(waiting for children): the holder gives up its lease until a join decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString, TypeAlias

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.fence import SEEN, SEEN_COLUMNS, SeenExecution, answers
from flowfabric.engine.lifecycle.sql.requeue import requeue
from flowfabric.errors import Refusal
from flowfabric.ids import ExecutionId, GroupId
from flowfabric.states import AttemptState, GroupState, LifecyclePhase

# The joins are locked before the execution, as a dispatch does: either the decision is committed
# first and read here, or the dispatch finds the execution waiting.
WAIT_CHILDREN: Final[LiteralString] = (
    """
-- lifecycle.wait_children
WITH asked AS (       -- the leases that the callers pass
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[],
                         %(attempt_index)s::integer[], %(lease_epoch)s::bigint[],
                         %(lease_id)s::uuid[]) WITH ORDINALITY
        AS asked (held_partition, held_execution, held_attempt, held_epoch, held_lease, ordinal)
), grouped AS (       -- the joins that each would wait for, locked
    SELECT asked.ordinal, g.group_state
      FROM unnest(%(caller)s::bigint[], %(group_id)s::uuid[]) AS named (ordinal, group_id)
      JOIN asked USING (ordinal)
      JOIN ff.edge_group g
        ON (g.partition_key, g.group_id, g.waiter_eid)
         = (asked.held_partition, named.group_id, asked.held_execution)
     ORDER BY g.partition_key, g.group_id FOR NO KEY UPDATE OF g
), decided AS (       -- `pending` while none of them is decided
    SELECT ordinal, coalesce(min(group_state) FILTER (WHERE group_state <> 'pending'), 'pending')
               AS group_state
      FROM grouped GROUP BY ordinal
), held AS (
    SELECT asked.*, decided.group_state FROM asked LEFT JOIN decided USING (ordinal)
)"""
    + SEEN
    + requeue(
        "seen",
        where="holds AND group_state = 'pending'",
        waiting_for="'waiting_for_children'",
        attempt_outcome="'waiting_children'",
        infra_releases="0",
        bumps_epoch="false",
        lease_reason="'waiting_children'",
        by_holder=True,
    )
    + f"""
SELECT {SEEN_COLUMNS},
       coalesce(seen.holds, false) AS holds, held.group_state
  FROM held LEFT JOIN seen USING (ordinal)
 WHERE ordinal NOT IN (SELECT ordinal FROM requeued)
"""
)


class ChildWait(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of `lease` wants to wait until one of these joins is decided."""

    lease: Lease
    groups: tuple[GroupId, ...]


class WaitingChildren(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt is interrupted; it goes on, under the same index, when a join is decided."""

    execution_id: ExecutionId


class NothingToWaitFor(msgspec.Struct, frozen=True, kw_only=True):
    """A join is decided, or (None) the execution has no such join; the lease is still held."""

    execution_id: ExecutionId
    group_state: GroupState | None


class _Row(SeenExecution, frozen=True):
    holds: bool
    group_state: str | None


ChildAnswer: TypeAlias = WaitingChildren | NothingToWaitFor


async def wait_children(
    conn: Connection, waits: Sequence[ChildWait]
) -> list[ChildAnswer | Refusal]:
    """Requeue every execution whose lease is held and whose joins are pending, in the order given.

    A call that the same holder repeats after a lost answer gets the first answer again.
    """
    leases = [each.lease for each in waits]
    rows = await fetch_all(
        conn,
        WAIT_CHILDREN,
        _Row,
        caller=[number for number, each in enumerate(waits, 1) for _ in each.groups],
        group_id=[group.uuid for each in waits for group in each.groups],
        **fence_columns(leases),
    )
    by_ordinal = {row.ordinal: row for row in rows}
    return answers(
        leases,
        rows,
        done=lambda lease: WaitingChildren(execution_id=lease.execution_id),
        done_before=lambda lease, seen: _not_requeued(lease, by_ordinal[seen.ordinal]),
    )


def _not_requeued(lease: Lease, row: _Row) -> ChildAnswer | None:
    """The answer of a call that changed nothing; None if the lease is refused."""
    if row.holds:
        state = None if row.group_state is None else GroupState(row.group_state)
        return NothingToWaitFor(execution_id=lease.execution_id, group_state=state)
    if (
        row.was_ended_by(lease)
        and row.lifecycle_phase == LifecyclePhase.RUNNABLE
        and row.attempt_state == AttemptState.ATTEMPT_INTERRUPTED
    ):
        return WaitingChildren(execution_id=lease.execution_id)
    return None
