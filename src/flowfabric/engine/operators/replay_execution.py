"""terminal → runnable: executions that have ended run once more, and what they held back waits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.faults import SerializationConflict
from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.flows.lock_flows import lock_flows
from flowfabric.engine.joins.lock_joins import lock_joins
from flowfabric.engine.joins.member_joins import can_run_again, member_joins
from flowfabric.engine.joins.skipped_below import skipped_below
from flowfabric.engine.journal.rewind_journal import (
    ReplayFrom,
    check_replay_from,
    find_step,
    rewind_journal,
)
from flowfabric.engine.lifecycle.lock_executions import (
    LockedExecution,
    id_columns,
    lock_and_read,
)
from flowfabric.engine.lifecycle.lock_unique_keys import lock_unique_keys
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor
from flowfabric.engine.lifecycle.restart import restart_refusal
from flowfabric.engine.lifecycle.visible_executions import visible_executions
from flowfabric.engine.operators.control import control, each_once, only
from flowfabric.engine.operators.restart_members import By, restart_members
from flowfabric.errors import EngineError, FlowAlreadyTerminal, NotFound
from flowfabric.ids import ExecutionId
from flowfabric.states import FlowState, GroupState, PublicState, TerminalOutcome

# Only says which flows to lock; what is decided is read again under the locks.
MEMBERSHIPS: Final[LiteralString] = """
-- operators.replay_execution: the flows, not locked yet
SELECT e.partition_key, e.execution_id, e.flow_id
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS named (partition_key, execution_id)
 CROSS JOIN LATERAL (  -- by key, also if the plan is made while the tables are empty
       SELECT * FROM ff.execution x
        WHERE (x.partition_key, x.execution_id) = (named.partition_key, named.execution_id)
       OFFSET 0) AS e
 WHERE e.flow_id IS NOT NULL
"""


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
    members: set[ExecutionId]
    """The members that are locked, named or skipped below those, with the joins below them."""
    waiters: set[ExecutionId]
    """The executions whose joins are locked."""

    def decide(self, seen: LockedExecution) -> EngineError | None:
        if seen.flow_id is not None:
            flow = (seen.partition_key, seen.flow_id)
            if flow not in self.flows:
                # What is not locked comes before the locks that are held: run it all again.
                raise SerializationConflict(f"{seen.id} joined a flow meanwhile")
            if self.flows[flow] is FlowState.CANCELLED:
                return FlowAlreadyTerminal(seen.flow_id)
        return restart_refusal(seen)

    def waits(self, seen: LockedExecution) -> bool:
        """Does the execution wait for its upstreams before it runs once more?"""
        return seen.terminal_outcome == TerminalOutcome.SKIPPED and seen.id in self.waiters


async def replay_execution(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    from_: ReplayFrom = "failure",
    from_step: str | None = None,
    downstream: bool = True,
    actor: str = DEFAULT_ACTOR,
    reason: str | None = None,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> Replayed:
    """The execution is claimable again, with fresh retries and its last attempt made anew.

    A member of a flow that was skipped waits for its upstreams again: if those have succeeded by
    now it is claimable at once, and if too few of them can it is skipped again. Members that were
    skipped because of this one wait again too, and so do those below them; `downstream=False`
    leaves them skipped. One that cannot run because another upstream has failed stays skipped
    until that upstream is replayed as well.

    A handler with durable calls goes on before the one that failed; what was done stays done. With
    `from_="start"` it begins with an empty journal, and with `from_step` before the first call of
    that name. The event lists the calls that are made again.

    Result, failure and cancellation are cleared; the event keeps what they were. A deadline that
    has passed is granted again, counted from now. Needs a transaction. Raises `NotFound`, also if
    the journal has no such step, `FlowAlreadyTerminal` for a member of a cancelled flow,
    `ExecutionNotTerminal`, `MaxReplaysExhausted` once the policy's `max_replay_count` (10) is
    reached, `LaneNotAccepting` if the lane is draining or disabled, and `UniqueKeyTaken` if another
    execution has its unique key now.
    """
    return only(
        await replay_executions(
            conn,
            [execution_id],
            from_=from_,
            from_step=from_step,
            downstream=downstream,
            actor=actor,
            reason=reason,
            expected_last_mutation_at=expected_last_mutation_at,
            namespaces=namespaces,
        )
    )


async def replay_executions(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    from_: ReplayFrom = "failure",
    from_step: str | None = None,
    downstream: bool = True,
    actor: str = DEFAULT_ACTOR,
    reason: str | None = None,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> list[Replayed | EngineError]:
    """As `replay_execution` for at most 1,000 executions, with what that raises as answers.

    The answers come in the order given. Raises `ValidationError` for arguments that cannot be.
    """
    by = By(check_actor(actor), reason)
    check_replay_from(from_, from_step)
    named = each_once(executions)
    named = await visible_executions(conn, named, namespaces)
    if not named:
        return [NotFound("execution", each) for each in executions]
    await lock_unique_keys(conn, named)
    locked = await _lock(conn, named, downstream=downstream)
    having = None if from_step is None else await find_step(conn, named, from_step)

    def decide(seen: LockedExecution) -> EngineError | None:
        refusal = locked.decide(seen)
        if refusal is None and having is not None and seen.id not in having:
            return NotFound("step", f"{from_step!r} of execution {seen.id}")
        return refusal

    async def change(changing: list[LockedExecution]) -> dict[ExecutionId, Replayed]:
        even_failed = {each.id for each in changing if locked.waits(each)}
        below = await _below(conn, changing, locked) if downstream else []
        rewound = await rewind_journal(
            conn, [each.id for each in changing], from_=from_, from_step=from_step
        )
        if below:
            rewound |= await rewind_journal(conn, [each.id for each in below])
        states = await restart_members(
            conn,
            [*changing, *below],
            by,
            waiting=even_failed.union(each.id for each in below),
            even_failed=even_failed,
            rewound=rewound,
        )
        return {
            each.id: Replayed(execution_id=each.id, public_state=states[each.id])
            for each in changing
        }

    return await control(
        conn,
        executions,
        decide=decide,
        change=change,
        seen_at=expected_last_mutation_at,
        namespaces=namespaces,
    )


async def _lock(
    conn: Connection, executions: Sequence[ExecutionId], *, downstream: bool
) -> _Locked:
    """Flows, then groups, then edges, then executions: the order in which everybody locks.

    A cancel of a flow waits until the replay is committed, and then finds the member.
    """
    rows = await fetch_all(conn, MEMBERSHIPS, _Membership, **id_columns(executions))
    if not rows:
        return _Locked({}, set(), set())
    flows = dict.fromkeys((row.partition_key, row.flow_id) for row in rows)
    states = await lock_flows(conn, list(flows))
    members = {ExecutionId(row.partition_key, row.execution_id) for row in rows}
    if downstream:
        members |= await skipped_below(conn, [*members])
    waiters = await lock_joins(conn, sorted(members.union(executions)))
    return _Locked(flows | states, members, waiters)


async def _below(
    conn: Connection, changing: Sequence[LockedExecution], locked: _Locked
) -> list[LockedExecution]:
    """The members that were skipped because of these, as far as they can run again."""
    named = [each.id for each in changing if each.flow_id is not None]
    if not named:
        return []
    below = await skipped_below(conn, named)
    if not below <= locked.members:
        raise SerializationConflict("a member was skipped meanwhile")
    if not below:
        return []
    rows = await lock_and_read(conn, sorted(below))
    able = sorted(each for each, row in rows.items() if restart_refusal(row) is None)
    joins = await member_joins(conn, [*able, *named])
    running = [
        each.id
        for each in changing
        if not locked.waits(each)
        or each.id not in joins
        or joins[each.id].decision(len(joins[each.id].unsuccessful)) is not GroupState.IMPOSSIBLE
    ]
    chosen = can_run_again(able, joins, running)
    return [rows[each.execution_id] for each in chosen if each.waits]
