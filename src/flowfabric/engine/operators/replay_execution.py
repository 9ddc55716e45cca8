"""terminal → runnable: executions that have ended run once more; skipped members wait again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.faults import SerializationConflict
from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.flows.lock_flows import lock_flows
from flowfabric.engine.flows.unsettle_summary import unsettle_summaries
from flowfabric.engine.joins.reset_join import LockedJoins, lock_joins, reset_joins
from flowfabric.engine.lifecycle.lock_executions import (
    LockedExecution,
    id_columns,
    lock_executions,
)
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_events
from flowfabric.engine.lifecycle.restart import restart, restart_refusal
from flowfabric.engine.operators.control import control, each_once, only
from flowfabric.errors import EngineError, FlowAlreadyTerminal
from flowfabric.ids import ExecutionId
from flowfabric.states import (
    FlowState,
    GroupState,
    OperatorEventType,
    PublicState,
    TerminalOutcome,
)

# Only says which flows to lock; what is decided is read again under the locks.
MEMBERSHIPS: Final[LiteralString] = """
-- operators.replay_execution: the flows, not locked yet
SELECT e.partition_key, e.execution_id, e.flow_id
  FROM ff.exec_core e
  JOIN unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS named (partition_key, execution_id) USING (partition_key, execution_id)
 WHERE e.flow_id IS NOT NULL
"""

STATE_AFTER: Final = {
    GroupState.SATISFIED: PublicState.WAITING,
    GroupState.IMPOSSIBLE: PublicState.SKIPPED,
}
"""The state of a member whose join was decided at once."""


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """The execution is on its way again."""

    execution_id: ExecutionId
    public_state: PublicState


class _Membership(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    flow_id: UUID


class _Locked(msgspec.Struct, frozen=True):
    """Everything that a replay locks before the executions themselves are read."""

    flows: dict[tuple[int, UUID], FlowState | None]
    joins: LockedJoins

    def decide(self, seen: LockedExecution) -> EngineError | None:
        if seen.flow_id is not None:
            flow = (seen.partition_key, seen.flow_id)
            if flow not in self.flows or (self.waits(seen) and seen.id not in self.joins.skipped):
                # What is not locked comes before the locks that are held: run it all again.
                raise SerializationConflict(f"{seen.id} joined a flow, or was skipped, meanwhile")
            if self.flows[flow] is FlowState.CANCELLED:
                return FlowAlreadyTerminal(seen.flow_id)
        return restart_refusal(seen)

    def waits(self, seen: LockedExecution) -> bool:
        """Does the execution wait for its upstreams before it runs once more?"""
        return seen.flow_id is not None and seen.terminal_outcome == TerminalOutcome.SKIPPED


async def replay_execution(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    actor: str = DEFAULT_ACTOR,
    reason: str | None = None,
) -> Replayed:
    """The execution is claimable again, with fresh retries and its last attempt made anew.

    A member of a flow that was skipped waits for its upstreams again: if those have succeeded by
    now it is claimable at once, and if too few of them can it is skipped again. Replays go
    top-down: what was skipped because of this member stays skipped.

    Result, failure and cancellation are cleared; the event keeps what they were. A deadline that
    has passed is granted again, counted from now. Needs a transaction. Raises `NotFound`,
    `FlowAlreadyTerminal` for a member of a cancelled flow, `ExecutionNotTerminal`,
    `MaxReplaysExhausted` once the policy's `max_replay_count` (10) is reached, and
    `LaneNotAccepting` if the lane is draining or disabled.
    """
    return only(await replay_executions(conn, [execution_id], actor=actor, reason=reason))


async def replay_executions(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    actor: str = DEFAULT_ACTOR,
    reason: str | None = None,
) -> list[Replayed | EngineError]:
    """As `replay_execution` for at most 1,000 executions, with what that raises as answers.

    The answers come in the order given. Raises `ValidationError` for arguments that cannot be.
    """
    check_actor(actor)
    named = each_once(executions)
    if not named:
        return []
    locked = await _lock(conn, named)

    async def change(changing: list[LockedExecution]) -> dict[ExecutionId, Replayed]:
        waiting = {each.id for each in changing if locked.waits(each)}
        restarted = await restart(conn, [each.id for each in changing], waiting=waiting)
        await operator_events(
            conn,
            OperatorEventType.REPLAYED,
            {
                each: row.facts(
                    groups_reset=locked.joins.skipped[each] if each in waiting else None
                )
                for each, row in restarted.items()
            },
            actor=actor,
            reason=reason,
        )
        decided = await _wait_again(conn, changing, waiting)
        return {
            each: Replayed(
                execution_id=each,
                public_state=decided.get(each, PublicState(row.new_public_state)),
            )
            for each, row in restarted.items()
        }

    return await control(conn, executions, decide=locked.decide, change=change)


async def _lock(conn: Connection, executions: Sequence[ExecutionId]) -> _Locked:
    """Flows, then groups, then edges, then executions: the order in which everybody locks.

    A cancel of a flow waits until the replay is committed, and then finds the member.
    """
    rows = await fetch_all(conn, MEMBERSHIPS, _Membership, **id_columns(executions))
    if not rows:
        return _Locked({}, LockedJoins({}, []))
    flows = dict.fromkeys((row.partition_key, row.flow_id) for row in rows)
    states = await lock_flows(conn, list(flows))
    members = [ExecutionId(row.partition_key, row.execution_id) for row in rows]
    joins = await lock_joins(conn, members)
    await lock_executions(conn, [*{*executions, *joins.upstreams}])
    return _Locked(flows | states, joins)


async def _wait_again(
    conn: Connection, changing: Sequence[LockedExecution], waiting: Collection[ExecutionId]
) -> dict[ExecutionId, PublicState]:
    """Flows of replayed members count as open; members that wait and were decided at once."""
    flows = {(each.partition_key, each.flow_id) for each in changing if each.flow_id is not None}
    if flows:
        await unsettle_summaries(conn, [*flows])
    if not waiting:
        return {}
    decided = await reset_joins(conn, sorted(waiting))
    return {each: STATE_AFTER[state] for each, state in decided.items()}
