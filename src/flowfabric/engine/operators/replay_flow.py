"""What keeps a flow from being completed runs again, and what was skipped for it waits again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection
from flowfabric.db.transaction import run, transact
from flowfabric.engine.flows.lock_as_seen import lock_as_seen
from flowfabric.engine.flows.lock_flows import lock_flows
from flowfabric.engine.flows.reopen_flow import WasFlow, reopen_flow
from flowfabric.engine.flows.touch_flow import touch_flow
from flowfabric.engine.joins.lock_joins import lock_joins
from flowfabric.engine.joins.member_joins import RunsAgain, can_run_again, member_joins
from flowfabric.engine.journal.rewind_journal import rewind_journal
from flowfabric.engine.lifecycle.lock_executions import LockedExecution, lock_and_read
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.engine.lifecycle.restart import restart_refusal
from flowfabric.engine.operators.plan_replay import (
    ReplayMember,
    ReplayPlan,
    plan_replay,
    waits_for_upstreams,
)
from flowfabric.engine.operators.restart_members import By, restart_members
from flowfabric.errors import FlowAlreadyTerminal, NotFound
from flowfabric.ids import ExecutionId, uuid_partition
from flowfabric.states import FlowState, OperatorEventType, PublicState, TerminalOutcome

AT_ONCE: Final = 1000
"""Members that one transaction restarts at most."""
EDGES_AT_ONCE: Final = 5000
"""Edges of the joins of those members, unless one member has more."""


class ReplayedFlow(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay of the flow did, or with `preview` what it would do."""

    flow_id: UUID
    preview: bool
    run_again: list[ReplayMember]
    """The members that are claimable again."""
    wait_again: list[ReplayMember]
    """The members that wait for their upstreams again."""
    stay: list[ReplayMember]
    """The members that the flow needs and that stay as they ended; `reason` says why."""


class _Flow(msgspec.Struct, frozen=True):
    partition_key: int
    flow_id: UUID
    by: By


async def replay_flow(
    pool: Pool,
    flow_id: UUID,
    *,
    preview: bool = False,
    actor: str = DEFAULT_ACTOR,
    reason: str | None = None,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
    partitions: int = 256,
) -> ReplayedFlow:
    """The members that keep the flow from being completed run again, in the order of the graph.

    Members that failed, expired or were cancelled run again as by `replay_execution`, those whose
    join is not satisfied once it is; members that were skipped wait for their upstreams again. A
    member that the flow did without, because the joins that wait for it were satisfied, stays as it
    ended, and so does every member that succeeded. A child runs again if its parent does. A
    cancelled flow is open again.

    A flow of up to 1,000 such members is one transaction; others take a transaction for each 1,000,
    and a call that was interrupted is finished by the next. A repeated call finds nothing to do.
    With `preview` nothing changes. Raises `NotFound(flow)`, `ValidationError` for an actor that
    cannot be, `StaleView` for a flow that has changed after `expected_last_mutation_at`, and
    `FlowAlreadyTerminal` while a cancel of the flow has members to end, or if the flow is cancelled
    meanwhile.
    """
    flow = _Flow(uuid_partition(flow_id, partitions), flow_id, By(check_actor(actor), reason))
    plan, done = await transact(
        pool,
        "replay_flow",
        lambda conn: _begin(
            conn, flow, preview=preview, seen_at=expected_last_mutation_at, namespaces=namespaces
        ),
    )
    if preview:
        return _answer(flow_id, plan, plan.again, preview=True)
    members, [*slices] = plan.members, _slices(plan.again)
    tried = {*itertools.chain(*slices)}
    rest = slices[1:]
    while slices:
        for some in rest:
            done += await transact(
                pool, "replay_flow", lambda conn, some=some: _go_on(conn, flow, some)
            )
        # What was skipped while this call ran, by completions of before it.
        later = await _plan(pool, flow)
        members = later.members | members
        slices = rest = [
            *_slices([each for each in later.again if each.execution_id in later.skipped - tried])
        ]
        tried.update(*slices)
    return _answer(flow_id, msgspec.structs.replace(plan, members=members), done, preview=False)


async def _plan(pool: Pool, flow: _Flow) -> ReplayPlan:
    return await run(
        pool, "plan_replay", lambda conn: plan_replay(conn, flow.partition_key, flow.flow_id)
    )


async def _begin(
    conn: Connection,
    flow: _Flow,
    *,
    preview: bool,
    seen_at: datetime | None,
    namespaces: Sequence[str] | None,
) -> tuple[ReplayPlan, list[RunsAgain]]:
    """The plan, and those of its first slice that run again; the flow is open."""
    if seen_at is not None:
        await lock_as_seen(
            conn, flow.partition_key, flow.flow_id, seen_at=seen_at, namespaces=namespaces
        )
    plan = await plan_replay(conn, flow.partition_key, flow.flow_id, namespaces=namespaces)
    if preview or not plan.again:
        return plan, []
    was = await _open(conn, flow, is_cancelled=plan.is_cancelled)
    await operator_event(
        conn,
        OperatorEventType.FLOW_REPLAYED,
        actor=flow.by.actor,
        reason=flow.by.reason,
        flow=(flow.partition_key, flow.flow_id),
        flow_id=str(flow.flow_id),
        member_count=len(plan.again),
        old_public_flow_state=was.public_flow_state,
        old_cancel_reason=was.cancel_reason,
        old_cancellation_policy=was.cancellation_policy,
    )
    return plan, await _restart(conn, flow, next(_slices(plan.again)))


async def _go_on(conn: Connection, flow: _Flow, members: Sequence[ExecutionId]) -> list[RunsAgain]:
    """As `_restart`, for a later slice."""
    await _lock(conn, flow)
    return await _restart(conn, flow, members)


async def _restart(
    conn: Connection, flow: _Flow, members: Sequence[ExecutionId]
) -> list[RunsAgain]:
    """Those of the members that run again, decided anew under the locks; the flow is locked."""
    await lock_joins(conn, members)
    rows = await lock_and_read(conn, members)
    able = [each for each in members if each in rows and _ended_without_success(rows[each])]
    again = can_run_again(able, await member_joins(conn, able)) if able else []
    if not again:
        return []
    states = await restart_members(
        conn,
        [rows[each.execution_id] for each in again],
        flow.by,
        waiting={each.execution_id for each in again if each.waits},
        rewound=await rewind_journal(conn, [each.execution_id for each in again]),
    )
    return [each for each in again if states[each.execution_id] is not PublicState.SKIPPED]


async def _open(conn: Connection, flow: _Flow, *, is_cancelled: bool) -> WasFlow:
    if is_cancelled:
        return await reopen_flow(conn, flow.partition_key, flow.flow_id)
    await touch_flow(conn, flow.partition_key, flow.flow_id)
    return await _lock(conn, flow)


async def _lock(conn: Connection, flow: _Flow) -> WasFlow:
    key = (flow.partition_key, flow.flow_id)
    state = (await lock_flows(conn, [key])).get(key)
    if state is None:
        raise NotFound("flow", flow.flow_id)
    if state is FlowState.CANCELLED:
        raise FlowAlreadyTerminal(flow.flow_id)
    return WasFlow(state.value, None, None)


def _ended_without_success(row: LockedExecution) -> bool:
    return restart_refusal(row) is None and row.terminal_outcome != TerminalOutcome.SUCCESS


def _slices(again: Sequence[RunsAgain]) -> Iterator[list[ExecutionId]]:
    """The members in their order, in batches that one transaction restarts."""
    some, edges = list[ExecutionId](), 0
    for each in again:
        if some and (len(some) == AT_ONCE or edges + each.edges > EDGES_AT_ONCE):
            yield some
            some, edges = [], 0
        some.append(each.execution_id)
        edges += each.edges
    if some:
        yield some


def _answer(
    flow_id: UUID, plan: ReplayPlan, again: Sequence[RunsAgain], *, preview: bool
) -> ReplayedFlow:
    def named(waits: bool) -> list[ReplayMember]:
        return [
            plan.members[each.execution_id] for each in again if waits_for_upstreams(each) is waits
        ]

    return ReplayedFlow(
        flow_id=flow_id,
        preview=preview,
        run_again=named(False),
        wait_again=named(True),
        stay=plan.stay,
    )
