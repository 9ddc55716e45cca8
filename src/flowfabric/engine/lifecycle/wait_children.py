"""active → runnable(waiting for children): the holder gives up its lease until a join decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString, TypeAlias

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.fence import SeenExecution, answers, holding
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
    + holding("group_state")
    + requeue(
        "holding",
        where="group_state = 'pending'",
        waiting_for="'waiting_for_children'",
        attempt_outcome="'waiting_children'",
        infra_releases="0",
        bumps_epoch="false",
        lease_reason="'waiting_children'",
        by_holder=True,
    )
    + """
SELECT ordinal, group_state, ordinal IN (SELECT ordinal FROM requeued) AS waits FROM holding
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


class _Row(msgspec.Struct, frozen=True):
    ordinal: int
    group_state: str | None
    waits: bool


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
    decided = [row for row in rows if row.waits or row.group_state != GroupState.PENDING]
    decisions = {leases[row.ordinal - 1]: row for row in decided}
    return await answers(
        conn,
        leases,
        [row.ordinal for row in decided],
        done=lambda lease: _done(lease, decisions[lease]),
        done_before=_done_before,
    )


def _done(lease: Lease, row: _Row) -> ChildAnswer:
    if row.waits:
        return WaitingChildren(execution_id=lease.execution_id)
    state = None if row.group_state is None else GroupState(row.group_state)
    return NothingToWaitFor(execution_id=lease.execution_id, group_state=state)


def _done_before(lease: Lease, seen: SeenExecution) -> ChildAnswer | None:
    if (
        seen.was_ended_by(lease)
        and seen.lifecycle_phase == LifecyclePhase.RUNNABLE
        and seen.attempt_state == AttemptState.ATTEMPT_INTERRUPTED
    ):
        return WaitingChildren(execution_id=lease.execution_id)
    return None
