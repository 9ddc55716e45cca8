"""A flow is cancelled: its graph is closed, and its backlog lists the members that are to end."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_all, fetch_maybe
from flowfabric.engine.lifecycle.end_blocked_members import end_blocked_members
from flowfabric.engine.lifecycle.lock_members import lock_members
from flowfabric.engine.lifecycle.operator_event import check_actor, operator_event
from flowfabric.engine.lifecycle.park_members import park_members
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.errors import NotFound, invalid_input
from flowfabric.ids import ExecutionId, check_text, uuid_partition
from flowfabric.policy import grace_milliseconds
from flowfabric.refuse_stale import refuse_stale
from flowfabric.states import CancellationPolicy, FlowState, OperatorEventType, TerminalOutcome

DEFAULT_GRACE: Final = 30.0
DEFAULT_REASON: Final = "flow_cancelled"
BY: Final = "cancel_flow"
"""`cancelled_by` of the members."""
MAX_NAMED: Final = 1000
"""Members that the answer to a repeated cancel names at most."""

LOCK: Final[LiteralString] = """
-- flows.cancel_flow_header: the flow
SELECT public_flow_state, cancellation_policy, cancel_reason, last_mutation_at_ms FROM ff.flow_core
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
   AND (%(namespaces)s::text[] IS NULL OR namespace = ANY (%(namespaces)s::text[]))
   FOR NO KEY UPDATE
"""

LISTED: Final[LiteralString] = """
-- flows.cancel_flow_header: the members that the backlog lists; if it lists none, every member
SELECT execution_id FROM ff.cancel_backlog_member
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
 UNION ALL
SELECT execution_id FROM ff.exec_core
 WHERE partition_key = %(partition_key)s AND flow_id = %(flow_id)s
   AND NOT EXISTS (SELECT FROM ff.cancel_backlog_member m
                    WHERE (m.partition_key, m.flow_id) = (%(partition_key)s, %(flow_id)s))
 ORDER BY execution_id LIMIT %(limit)s
"""

CLOSE: Final[LiteralString] = """
-- flows.cancel_flow_header: the graph is closed
UPDATE ff.flow_core
   SET public_flow_state = 'cancelled', terminal_at_ms = ff.now_ms(),
       last_mutation_at_ms = ff.now_ms(), cancellation_policy = %(policy)s,
       cancel_reason = %(reason)s
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
"""

ADD_BACKLOG: Final[LiteralString] = """
-- flows.cancel_flow_header: the backlog
WITH backlog AS (
    INSERT INTO ff.cancel_backlog (
           partition_key, flow_id, requested_at_ms, grace_until_ms, requester, reason,
           cancellation_policy)
    VALUES (%(partition_key)s, %(flow_id)s, ff.now_ms(), ff.now_ms() + %(grace_ms)s::bigint,
            %(requester)s, %(reason)s, %(policy)s)
)
INSERT INTO ff.cancel_backlog_member (partition_key, flow_id, execution_id)
SELECT %(partition_key)s, %(flow_id)s, execution_id
  FROM unnest(%(execution_id)s::uuid[]) AS execution_id
"""


class FlowCancelAccepted(msgspec.Struct, frozen=True, kw_only=True):
    """This call cancelled the flow, and ended the members that are named or listed them to end.

    A member that another transaction had locked is listed.
    """

    flow_id: UUID
    cancellation_policy: CancellationPolicy
    member_execution_ids: list[ExecutionId]
    cancel_pending: int
    """How many of them the backlog lists; the others have ended."""


class FlowAlreadyCancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The flow was cancelled before, by this policy and for this reason; nothing changed."""

    flow_id: UUID
    stored_cancellation_policy: CancellationPolicy
    stored_cancel_reason: str
    member_execution_ids: list[ExecutionId]


class _Flow(msgspec.Struct, frozen=True):
    public_flow_state: str
    cancellation_policy: str | None
    cancel_reason: str | None
    last_mutation_at_ms: int


class _Member(msgspec.Struct, frozen=True):
    execution_id: UUID


async def cancel_flow_header(
    conn: Connection,
    flow_id: UUID,
    *,
    reason: str = "",
    policy: CancellationPolicy | str = CancellationPolicy.CANCEL_ALL,
    grace: float | timedelta = DEFAULT_GRACE,
    requester: str = "operator",
    end_at_once: int = 0,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
    partitions: int = 256,
) -> FlowCancelAccepted | FlowAlreadyCancelled:
    """The flow is cancelled, and no worker can claim a member that is to end and was not locked.

    If all members are to end and at most `end_at_once` have not ended, this call ends them, without
    a backlog. It never waits for a member: one that another transaction has locked is listed in the
    backlog as it is, and may be claimed once more if that transaction requeues it. Needs a
    transaction. Raises `ValidationError` (policy, `invalid_grace_ms`), `NotFound(flow)`, and
    `StaleView` for a flow that has changed after `expected_last_mutation_at`.
    """
    wanted = check_policy(policy)
    grace_ms = grace_milliseconds(grace)
    check_actor(requester)
    why = check_text(reason, field="reason", at_most=16_384) if reason else DEFAULT_REASON
    home = uuid_partition(flow_id, partitions)
    where = {"partition_key": home, "flow_id": flow_id}
    flow = await fetch_maybe(conn, LOCK, _Flow, namespaces=namespaces, **where)
    if flow is None:
        raise NotFound("flow", flow_id)
    refuse_stale("flow", flow_id, expected_last_mutation_at, changed_at_ms=flow.last_mutation_at_ms)
    if flow.public_flow_state != FlowState.OPEN:
        listed = await fetch_all(conn, LISTED, _Member, limit=MAX_NAMED, **where)
        return FlowAlreadyCancelled(
            flow_id=flow_id,
            stored_cancellation_policy=CancellationPolicy(flow.cancellation_policy or ""),
            stored_cancel_reason=flow.cancel_reason or "",
            member_execution_ids=[ExecutionId(home, each.execution_id) for each in listed],
        )
    await execute(conn, CLOSE, policy=wanted.value, reason=why, **where)
    ended, pending = await _end_or_park(conn, home, flow_id, wanted, why, end_at_once)
    if pending:
        await execute(
            conn,
            ADD_BACKLOG,
            grace_ms=grace_ms,
            requester=requester,
            reason=why,
            policy=wanted.value,
            execution_id=[each.uuid for each in pending],
            **where,
        )
    await operator_event(
        conn,
        OperatorEventType.FLOW_CANCEL_REQUESTED,
        actor=requester,
        reason=why,
        flow=(home, flow_id),
        flow_id=str(flow_id),
        cancellation_policy=wanted,
        member_count=len(ended) + len(pending),
    )
    return FlowCancelAccepted(
        flow_id=flow_id,
        cancellation_policy=wanted,
        member_execution_ids=sorted([*ended, *pending], key=lambda each: each.uuid),
        cancel_pending=len(pending),
    )


async def _end_or_park(
    conn: Connection,
    home: int,
    flow_id: UUID,
    policy: CancellationPolicy,
    reason: str,
    end_at_once: int,
) -> tuple[Collection[ExecutionId], Collection[ExecutionId]]:
    """The members that have ended now, and those that are to be listed."""
    if policy is CancellationPolicy.CANCEL_FLOW_ONLY:
        return (), ()
    all_end = policy is CancellationPolicy.CANCEL_ALL
    blocked: Sequence[ExecutionId] = ()
    if all_end and end_at_once:
        blocked = await end_blocked_members(
            conn, home, flow_id, reason=reason, by=BY, limit=end_at_once
        )
    free, in_use = await lock_members(conn, home, flow_id)
    if all_end and len(blocked) + len(free) <= end_at_once:
        ended = await terminalize(
            conn, free, outcome=TerminalOutcome.CANCELLED, reason=reason, by=BY
        )
        return [*blocked, *ended], in_use
    parked = await park_members(conn, free, also_running=all_end)
    # Whether a member in use is to end is seen once it is locked: it may be about to run or to end.
    return blocked, [*parked, *in_use]


def check_policy(policy: str) -> CancellationPolicy:
    """The policy of that name; raises `ValidationError(invalid_input)`."""
    try:
        return CancellationPolicy(policy)
    except ValueError:
        known = ", ".join(CancellationPolicy)
        raise invalid_input("cancellation_policy", policy, f"is not one of {known}") from None
