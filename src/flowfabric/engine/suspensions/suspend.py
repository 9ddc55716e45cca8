"""active → suspended: holders give up their leases until signals, children or time resume them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.keys.key import active_key
from flowfabric.engine.lifecycle.lease import fence_columns
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.move_to_suspended import (
    MovedToSuspended,
    SuspendedLease,
    move_to_suspended,
)
from flowfabric.engine.lifecycle.sql.fence import SEEN_COLUMNS, held_leases
from flowfabric.engine.suspensions.plan_suspension import LeasedExecution, Place, Plans
from flowfabric.engine.suspensions.store_suspensions import NewSuspension, store_suspensions
from flowfabric.engine.suspensions.suspension import (
    Fresh,
    SatisfiedAlready,
    SuspendAnswer,
    Suspended,
    SuspendRequest,
)
from flowfabric.engine.suspensions.suspension import NothingToSuspendFor as NothingToSuspendFor
from flowfabric.engine.suspensions.suspension import UsePending as UsePending
from flowfabric.engine.suspensions.waitpoint import WAITPOINT_COLUMNS, WaitpointRow
from flowfabric.errors import EngineError
from flowfabric.ids import ExecutionId
from flowfabric.states import GroupState

_SMALL: Final = 2**15

# The joins are locked before the execution, as a dispatch does: either the decision is committed
# first and read here, or the dispatch finds the execution suspended.
LOCK_JOINS: Final[LiteralString] = """
-- suspensions.suspend: the joins that handlers would wait for, locked
SELECT named.place, g.group_state
  FROM unnest(%(place)s::bigint[], %(partition_key)s::smallint[], %(execution_id)s::uuid[],
              %(group_id)s::uuid[]) AS named (place, partition_key, execution_id, group_id)
  JOIN ff.edge_group g
    ON (g.partition_key, g.group_id, g.waiter_eid)
     = (named.partition_key, named.group_id, named.execution_id)
 ORDER BY g.partition_key, g.group_id FOR NO KEY UPDATE OF g
"""

# The executions are locked by a statement before this one: what that waited for has changed what is
# read here.
READ_LEASED: Final[LiteralString] = (
    """
-- suspensions.suspend: the executions under their locks
"""
    + held_leases(arrays="%(idempotency_key)s::text[]", names="idempotency_key")
    + f"""
SELECT {SEEN_COLUMNS}, coalesce(e.signal_seq, 0) AS signal_seq,
       coalesce(e.lease_expires_at_ms > ff.now_ms(), false) AS live,
       (SELECT s.suspension_id FROM ff.suspension_current s
         WHERE (s.partition_key, s.execution_id) = (held.held_partition, held.held_execution)
           AND s.attempt_index = held.held_attempt) AS suspension_id,
       (SELECT d.outcome::text FROM ff.suspend_dedup d
         WHERE (d.partition_key, d.execution_id, d.idempotency_key)
             = (held.held_partition, held.held_execution, held.idempotency_key)
           AND d.expires_at_ms > ff.now_ms()) AS answered,
       ff.now_ms() AS now_ms
  FROM held LEFT JOIN LATERAL (  -- by key, also if the plan is made while the tables are empty
       SELECT x.* FROM ff.execution x
        WHERE (x.partition_key, x.execution_id) = (held.held_partition, held.held_execution)
       OFFSET 0) AS e ON true
"""
)

# Locked: the sweep that closes expired waitpoints does not lock the execution.
READ_BOUND: Final[LiteralString] = f"""
-- suspensions.suspend: the waitpoints that the requests name, or that were made for them before
SELECT {WAITPOINT_COLUMNS}
  FROM (SELECT * FROM unnest(%(partition_key)s::smallint[], %(waitpoint_id)s::uuid[])
            AS named (partition_key, waitpoint_id)
         ORDER BY partition_key, waitpoint_id) AS named
 CROSS JOIN LATERAL (
       SELECT p.* FROM ff.waitpoint_pending p
        WHERE (p.partition_key, p.waitpoint_id) = (named.partition_key, named.waitpoint_id)
          FOR NO KEY UPDATE) AS w
"""


class _Join(msgspec.Struct, frozen=True):
    place: int
    group_state: str


async def suspend(
    conn: Connection, requests: Sequence[SuspendRequest]
) -> list[SuspendAnswer | EngineError]:
    """Suspend every execution whose lease is held and that has something to wait for.

    The answers come in the order given. A call that the same holder repeats after a lost answer
    gets the first answer again, by its idempotency key or its `suspension_id`. A request is refused
    with the first that applies: `ValidationError` (`timeout_at_in_past`), `NotFound`,
    `AlreadySuspended`, `ExecutionNotActive`, `StaleLease`, `LeaseExpired`, `ValidationError` if no
    key signs tokens, and what its waitpoints do not allow: `WaitpointAlreadyExists`,
    `WaitpointNotFound`, `WaitpointNotPending`, `PendingWaitpointExpired`, `ValidationError`. Needs
    a transaction.
    """
    answers: dict[int, SuspendAnswer | EngineError] = {}
    while len(answers) < len(requests):
        # Of several requests for one execution each is answered after the one before it.
        chosen: dict[ExecutionId, int] = {}
        for place, request in enumerate(requests):
            if place not in answers:
                chosen.setdefault(request.lease.execution_id, place)
        batch = [requests[place] for place in chosen.values()]
        answers |= zip(chosen.values(), await _suspend_each(conn, batch), strict=True)
    return [answers[place] for place in range(len(requests))]


async def _suspend_each(
    conn: Connection, requests: Sequence[SuspendRequest]
) -> list[SuspendAnswer | EngineError]:
    """As `suspend`; no two requests are for the same execution."""
    decided = await _lock_joins(conn, requests)
    named = [request.lease.execution_id for request in requests]
    await lock_executions(conn, [each for each in named if 0 <= each.partition_key < _SMALL])
    seen = await _read_leased(conn, requests)
    waitpoints = await _read_bound(conn, requests, seen)
    signs = any(isinstance(each, Fresh) for request in requests for each in request.bindings)
    plans = Plans(waitpoints, await active_key(conn) if signs else None)
    planned = [
        plans.plan(request, seen[place], is_decided=place in decided)
        for place, request in enumerate(requests)
    ]
    return await _carry_out(conn, planned)


async def _lock_joins(conn: Connection, requests: Sequence[SuspendRequest]) -> set[int]:
    """The places of requests that wait for a join that is decided, or does not exist."""
    joins = [
        (place, request.lease.execution_id, group_id)
        for place, request in enumerate(requests)
        for group_id in dict.fromkeys(request.awaits_joins)
    ]
    if not joins:
        return set()
    rows = await fetch_all(
        conn,
        LOCK_JOINS,
        _Join,
        place=[place for place, _, _ in joins],
        partition_key=[execution_id.partition_key for _, execution_id, _ in joins],
        execution_id=[execution_id.uuid for _, execution_id, _ in joins],
        group_id=[group_id for _, _, group_id in joins],
    )
    pending = Counter(row.place for row in rows if row.group_state == GroupState.PENDING)
    named = Counter(place for place, _, _ in joins)
    return {place for place, count in named.items() if pending[place] < count}


async def _read_leased(
    conn: Connection, requests: Sequence[SuspendRequest]
) -> list[LeasedExecution]:
    rows = await fetch_all(
        conn,
        READ_LEASED,
        LeasedExecution,
        idempotency_key=[request.idempotency_key for request in requests],
        **fence_columns([request.lease for request in requests]),
    )
    return sorted(rows, key=lambda row: row.ordinal)


async def _read_bound(
    conn: Connection, requests: Sequence[SuspendRequest], seen: Sequence[LeasedExecution]
) -> dict[Place, WaitpointRow]:
    named: set[Place] = set()
    for request, execution in zip(requests, seen, strict=True):
        if execution.lifecycle_phase is None:
            continue
        answer = execution.answer
        ids = [each.waitpoint_id for each in request.bindings]
        home = request.lease.execution_id.partition_key
        named |= {Place(home, each) for each in (ids if answer is None else answer.waitpoints)}
    if not named:
        return {}
    rows = await fetch_all(
        conn,
        READ_BOUND,
        WaitpointRow,
        partition_key=[place.partition_key for place in named],
        waitpoint_id=[place.waitpoint_id for place in named],
    )
    return {Place(row.partition_key, row.waitpoint_id): row for row in rows}


async def _carry_out(
    conn: Connection, planned: Sequence[SuspendAnswer | EngineError | NewSuspension]
) -> list[SuspendAnswer | EngineError]:
    """The leases are given up and the suspensions stored; a satisfied one keeps its lease."""
    moving = [each for each in planned if isinstance(each, NewSuspension) and not each.satisfiers]
    moves = [
        SuspendedLease(
            lease=each.request.lease,
            blocking_reason=each.request.reason.blocking_reason,
            detail=each.request.detail,
        )
        for each in moving
    ]
    moved = iter(await move_to_suspended(conn, moves) if moves else [])
    stored: list[NewSuspension] = []
    answers: list[SuspendAnswer | EngineError] = []
    for each in planned:
        if not isinstance(each, NewSuspension):
            answers.append(each)
            continue
        move = None if each.satisfiers else next(moved)
        if move is not None and not isinstance(move, MovedToSuspended):
            answers.append(move)  # the lease expired a moment ago
            continue
        if move is not None and move.parked:
            each = msgspec.structs.replace(each, close_reason="cancelled")
        stored.append(each)
        answers.append(
            (SatisfiedAlready if each.satisfiers else Suspended)(
                execution_id=each.request.lease.execution_id,
                suspension_id=each.request.suspension_id,
                waitpoints=each.waitpoints,
            )
        )
    await store_suspensions(conn, stored)
    return answers
