"""What the model remembers: executions, flows, and the ends that were told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

import msgspec

from flowfabric.ids import ExecutionId
from flowfabric.joins import AllOf, JoinPolicy
from flowfabric.policy import ExecutionPolicy
from flowfabric.states import PublicState
from tests.engine.flows.model import decision, kind_of
from tests.proofs.model.wait_records import Entry, Inbox, Suspension, Waitpoint

NAMESPACE: Final = "default"
RESUMABLE: Final = "resumable"
RUNNABLE: Final = {
    "eligible_now": "waiting",
    "not_eligible_until_time": "delayed",
    "blocked_by_dependencies": "waiting_children",
    "blocked_by_budget": "rate_limited",
    "blocked_by_quota": "rate_limited",
}


class Execution(msgspec.Struct, kw_only=True):
    """One execution; the fields carry the names of the columns that they are compared with."""

    execution_id: ExecutionId
    lane_id: str
    execution_kind: str
    required_capabilities: tuple[str, ...]
    priority: int
    created_at_ms: int
    last_mutation_at_ms: int
    eligibility_state: str
    blocking_reason: str
    payload: bytes
    policy: ExecutionPolicy | None
    idempotency_key: str | None = None
    flow_id: UUID | None = None
    flow_cancelled: bool = False
    lifecycle_phase: str = "runnable"
    terminal_outcome: str = "none"
    attempt_state: str = "pending_first_attempt"
    attempt_type: str = "initial"
    attempt_index: int = 0
    total_attempt_count: int = 0
    retry_count: int = 0
    replay_count: int = 0
    lease_reclaim_count: int = 0
    lease_epoch: int = 0
    lease_lost: bool = False
    lease_id: UUID | None = None
    lease_expires_at_ms: int | None = None
    worker_id: str | None = None
    worker_instance_id: str | None = None
    attempt_timeout_at_ms: int | None = None
    delay_until_ms: int | None = None
    not_before_ms: int | None = None
    deadline_at_ms: int | None = None
    deadline_from_ms: int = 0
    started_at_ms: int | None = None
    terminal_at_ms: int | None = None
    progress_pct: int | None = None
    progress_message: str | None = None
    blocking_detail: str | None = None
    failure_reason: str | None = None
    failure_category: str | None = None
    cancellation_reason: str | None = None
    cancelled_by: str | None = None
    result: bytes | None = None
    signal_seq: int = 0
    signals: list[Inbox] = []
    """What is in its inbox, in order."""
    entries: dict[int, Entry] = {}
    """What its journal has, by number."""
    generation: int = 0
    """How often its handler began with an empty journal again."""
    resume_pending: bool = False
    suspension: Suspension | None = None
    waitpoints: dict[UUID, Waitpoint] = {}
    answers: dict[str, tuple[bool, UUID, tuple[UUID, ...], int]] = {}
    """How suspensions with a key were answered: satisfied, its id, its waitpoints, until when."""
    overridden: str | None = None
    """The outcome with which an operator ended it in place of its worker."""

    def is_late(self, now_ms: int) -> bool:
        """Has its deadline passed?"""
        return self.deadline_at_ms is not None and self.deadline_at_ms <= now_ms

    @property
    def public_state(self) -> str:
        match self.lifecycle_phase:
            case "terminal":
                ended = self.terminal_outcome
                return "completed" if ended == "success" else ended
            case "active" | "suspended":
                return self.lifecycle_phase
            case _ if self.resume_pending and self.eligibility_state == "eligible_now":
                return "resumable"
            case _:
                return RUNNABLE.get(self.eligibility_state, "waiting")

    @property
    def state(self) -> PublicState:
        return PublicState(self.public_state)

    @property
    def place(self) -> tuple[int, int, UUID]:
        """Where it stands in the queue; the least is claimed first."""
        return -self.priority, self.created_at_ms, self.execution_id.uuid

    def stop_waiting(self, now_ms: int, reason: str) -> None:
        if self.suspension is not None:
            self.suspension.close(now_ms, reason)
        for each in self.waitpoints.values():
            each.close(now_ms, reason)

    def waits(self, eligibility: str, reason: str) -> None:
        self.eligibility_state, self.blocking_reason = eligibility, reason


class End(msgspec.Struct):
    """What one completion event told; `number` is its place in the order of events."""

    number: int
    execution_id: ExecutionId
    outcome: str
    flow_id: UUID | None
    dispatched: bool = False


class Edge(msgspec.Struct, kw_only=True):
    """One edge of a flow."""

    edge_id: UUID | None
    upstream: ExecutionId
    downstream: ExecutionId
    data_passing_ref: str | None = None
    applied: bool = False
    resolution: str = "unresolved"
    resolved_outcome: str | None = None
    resolved_by: int = 0
    min_event: int = 0

    def resolve(self, end: End) -> None:
        self.resolution = "satisfied" if end.outcome == "success" else "impossible"
        self.resolved_outcome, self.resolved_by = end.outcome, end.number

    @property
    def is_open(self) -> bool:
        return self.applied and self.resolution == "unresolved"


class Group(msgspec.Struct, kw_only=True):
    """What one member waits for; its counts are always taken from the edges."""

    downstream: ExecutionId
    policy: JoinPolicy = AllOf()
    expected_n: int | None = None
    state: str = "pending"
    siblings: list[ExecutionId] = []
    losers: list[ExecutionId] = []
    """Members that have ended; who served only them is yet to be found."""
    sibling_reason: str = ""


class Flow(msgspec.Struct, kw_only=True):
    """One flow with its graph, and what it owes its members."""

    flow_id: UUID
    partition_key: int
    created_at_ms: int
    last_mutation_at_ms: int
    state: str = "open"
    node_count: int = 0
    edges: list[Edge] = []
    groups: dict[ExecutionId, Group] = {}
    cancelled_at_ms: int | None = None
    cancel_reason: str | None = None
    cancellation_policy: str | None = None
    owed: set[ExecutionId] = set()
    owed_after_ms: int = 0
    summary_state: str = "open"
    summary_at_ms: int = 0

    @property
    def revision(self) -> int:
        return self.node_count + len(self.edges)

    def into(self, downstream: ExecutionId) -> list[Edge]:
        """The edges that gate a member."""
        return [each for each in self.edges if each.downstream == downstream and each.applied]

    def counts(self, downstream: ExecutionId) -> tuple[int, int, int, int]:
        """s, f, x and u of a group."""
        ends = [each.resolved_outcome for each in self.into(downstream)]
        skipped, running = ends.count("skipped"), ends.count(None)
        succeeded = ends.count("success")
        return succeeded, len(ends) - succeeded - skipped - running, skipped, running

    def decision(self, group: Group) -> str:
        kind, k, _ = kind_of(group.policy)
        return decision(kind, k, *self.counts(group.downstream), expected_n=group.expected_n)


class World:
    """Everything that the model knows, and its clock."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.executions: dict[ExecutionId, Execution] = {}
        self.keys: dict[str, tuple[ExecutionId, int]] = {}
        self.lanes: dict[str, str] = {}
        self.flows: dict[UUID, Flow] = {}
        self.ends: list[End] = []

    def members(self, flow_id: UUID) -> list[Execution]:
        found = [each for each in self.executions.values() if each.flow_id == flow_id]
        return sorted(found, key=lambda each: each.execution_id)

    def flow_of(self, execution: Execution) -> Flow | None:
        return None if execution.flow_id is None else self.flows[execution.flow_id]

    def last_end(self, execution_id: ExecutionId) -> int:
        """The number of the newest end of an execution, 0 where it never ended."""
        ends = (e for e in self.ends if e.execution_id == execution_id and e.outcome != RESUMABLE)
        return max((each.number for each in ends), default=0)

    def tell_resumable(self, each: Execution) -> None:
        """An event that is no end, and that nobody carries on."""
        number = len(self.ends) + 1
        self.ends.append(End(number, each.execution_id, RESUMABLE, None, dispatched=True))

    def waitpoint(self, near: ExecutionId, waitpoint_id: UUID) -> Waitpoint | None:
        """The waitpoint of any execution of the same partition."""
        for each in self.executions.values():
            if each.execution_id.partition_key == near.partition_key:
                found = each.waitpoints.get(waitpoint_id)
                if found is not None:
                    return found
        return None

    def is_owed_an_end(self, execution_id: ExecutionId) -> bool:
        return any(execution_id in flow.owed for flow in self.flows.values())

    def terminalize(
        self,
        executions: Iterable[Execution],
        outcome: str,
        *,
        reason: str | None = None,
        category: str | None = None,
        by: str | None = None,
        rotates: bool = True,
        closes: bool = True,
        close_reason: str | None = None,
    ) -> int:
        """Everyone who has not ended ends so; how many. `closes`: also their waitpoints."""
        ended = 0
        for each in executions:
            if each.lifecycle_phase == "terminal":
                continue
            ended += 1
            cancelled = outcome == "cancelled"
            each.lease_epoch += each.lifecycle_phase == "active" and rotates
            each.lifecycle_phase, each.terminal_outcome = "terminal", outcome
            each.waits("not_applicable", "none")
            each.terminal_at_ms = each.last_mutation_at_ms = self.now_ms
            each.delay_until_ms = each.not_before_ms = None
            each.blocking_detail, each.lease_lost = None, False
            each.resume_pending = False
            if closes:
                each.stop_waiting(self.now_ms, close_reason or outcome)
            if each.total_attempt_count:
                each.attempt_state = "attempt_terminal"
            each.failure_reason = None if cancelled else reason
            each.failure_category = None if cancelled else category
            each.cancellation_reason = reason if cancelled else None
            each.cancelled_by = by if cancelled else None
            self._let_go(each)
            self.ends.append(End(len(self.ends) + 1, each.execution_id, outcome, each.flow_id))
        return ended

    def relinquish(
        self,
        execution: Execution,
        *,
        until_ms: int | None = None,
        waiting_for: str = "waiting_for_worker",
        attempt_state: str = "attempt_interrupted",
        rotates: bool = False,
        loses: bool = False,
        suspends: bool = False,
    ) -> None:
        """The lease is given up and the execution goes on, now or later, or is suspended."""
        execution.lifecycle_phase = "runnable"
        execution.resume_pending = False
        execution.attempt_state = attempt_state
        execution.lease_epoch += rotates
        execution.lease_lost = loses
        execution.delay_until_ms = None
        if execution.flow_cancelled:
            execution.waits("blocked_by_operator", "paused_by_flow_cancel")
        elif suspends:
            execution.lifecycle_phase = "suspended"
            execution.waits("not_applicable", waiting_for)
        elif until_ms is None:
            execution.waits("eligible_now", "waiting_for_worker")
        else:
            execution.waits("not_eligible_until_time", waiting_for)
            execution.delay_until_ms = until_ms
        if attempt_state == "pending_retry_attempt":
            execution.attempt_index += 1
            execution.retry_count += 1
        self._let_go(execution)
        self.touch(execution)

    def touch(self, execution: Execution) -> None:
        execution.last_mutation_at_ms = self.now_ms

    @staticmethod
    def _let_go(execution: Execution) -> None:
        execution.lease_expires_at_ms = execution.worker_id = execution.worker_instance_id = None
        execution.attempt_timeout_at_ms = None
