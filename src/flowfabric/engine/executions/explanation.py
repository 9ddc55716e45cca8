"""The explanation of an execution's state, and the facts that it is made from."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from flowfabric.ids import ExecutionId
from flowfabric.served import ServedElsewhere, read_elsewhere
from flowfabric.states import PublicState


class ReasonCode(StrEnum):
    """What keeps an execution from running, or how it ended."""

    NOT_DUE = "not_due"
    SLEEPS = "sleeps"
    DUE = "due"
    LANE_NOT_ACTIVE = "lane_not_active"
    RESERVED = "reserved"
    NO_WORKER = "no_worker"
    NO_WORKER_FOR_KIND = "no_worker_for_kind"
    NO_CAPABLE_WORKER = "no_capable_worker"
    THREADS_STUCK = "threads_stuck"
    WORKERS_BUSY = "workers_busy"
    BEHIND_OTHERS = "behind_others"
    ABOUT_TO_START = "about_to_start"
    BLOCKED = "blocked"
    WAITS_FOR_UPSTREAMS = "waits_for_upstreams"
    SUSPENDED = "suspended"
    DIVERGED = "diverged"
    HELD = "held"
    HOLDER_SILENT = "holder_silent"
    LEASE_EXPIRED = "lease_expired"
    DEADLINE = "deadline"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    SKIPPED = "skipped"
    COMPENSATED = "compensated"


class ExplanationReason(msgspec.Struct, frozen=True, kw_only=True):
    """One reason: what is the case, what would change it, and when that happens by itself."""

    why: ReasonCode
    message: str
    remedy: str
    clears_at: datetime | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why an execution is in its state; the first reason is the decisive one."""

    execution_id: ExecutionId
    public_state: PublicState
    since: datetime
    lane_id: str
    execution_kind: str
    required_capabilities: list[str]
    live_workers: int
    able_workers: int
    reasons: list[ExplanationReason]

    @property
    def summary(self) -> str:
        return self.reasons[0].message


class Facts(msgspec.Struct, frozen=True):
    """The answer row of `explain_execution`: one execution with its lane, workers and joins."""

    seen_at_ms: int
    public_state: str
    lifecycle_phase: str
    eligibility_state: str
    blocking_reason: str
    blocking_detail: str | None
    attempt_state: str
    attempt_index: int
    total_attempt_count: int
    retry_count: int
    infra_release_count: int
    replay_count: int
    priority: int
    created_at_ms: int
    last_mutation_at_ms: int
    delay_until_ms: int | None
    deadline_at_ms: int | None
    terminal_at_ms: int | None
    attempt_started_at_ms: int | None
    attempt_timeout_at_ms: int | None
    lease_expires_at_ms: int | None
    worker_instance_id: str | None
    failure_reason: str | None
    failure_category: str | None
    cancellation_reason: str | None
    cancelled_by: str | None
    progress_pct: int | None
    progress_message: str | None
    namespace: str
    lane_id: str
    execution_kind: str
    required_capabilities: list[str]
    lane_state: str | None
    state_changed_by: str | None
    state_changed_at_ms: int | None
    state_reason: str | None
    workers: int
    lane_workers: int
    kind_workers: int
    able_workers: int
    stuck_workers: int
    slots: int
    busy_slots: int
    ahead: int
    missing_capabilities: list[str]
    elsewhere: str
    holder_alive: bool
    reserved_for: str | None
    reserved_until_ms: int | None
    actor: str | None
    unneeded_by: str | None
    max_replay_count: int
    timeout_ms: int | None
    deps_done: int
    deps_required: int
    deps_total: int
    deps_lost: int
    deps_open: list[str]
    is_limited: bool

    @property
    def served_elsewhere(self) -> list[ServedElsewhere]:
        """Live workers that serve its kind on other lanes or in other namespaces, at most three."""
        return read_elsewhere(self.elsewhere)
