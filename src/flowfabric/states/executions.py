"""Executions, their attempts, lanes and grants."""

from enum import StrEnum


class LifecyclePhase(StrEnum):
    """The main stage of an execution. `submitted` is reserved and never stored."""

    RUNNABLE = "runnable"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    TERMINAL = "terminal"


class OwnershipState(StrEnum):
    """Computed from the phase: leased exactly while active."""

    UNOWNED = "unowned"
    LEASED = "leased"


class EligibilityState(StrEnum):
    """Whether a runnable execution can be claimed, and if not, what holds it back."""

    ELIGIBLE_NOW = "eligible_now"
    NOT_ELIGIBLE_UNTIL_TIME = "not_eligible_until_time"
    BLOCKED_BY_DEPENDENCIES = "blocked_by_dependencies"
    BLOCKED_BY_BUDGET = "blocked_by_budget"
    BLOCKED_BY_QUOTA = "blocked_by_quota"
    BLOCKED_BY_ROUTE = "blocked_by_route"
    BLOCKED_BY_LANE_STATE = "blocked_by_lane_state"
    BLOCKED_BY_OPERATOR = "blocked_by_operator"
    NOT_APPLICABLE = "not_applicable"


class BlockingReason(StrEnum):
    """What an execution that is not running waits for."""

    NONE = "none"
    WAITING_FOR_WORKER = "waiting_for_worker"
    WAITING_FOR_RETRY_BACKOFF = "waiting_for_retry_backoff"
    WAITING_FOR_RESUME_DELAY = "waiting_for_resume_delay"
    WAITING_FOR_DELAY = "waiting_for_delay"
    WAITING_FOR_SIGNAL = "waiting_for_signal"
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    WAITING_FOR_CALLBACK = "waiting_for_callback"
    WAITING_FOR_TOOL_RESULT = "waiting_for_tool_result"
    WAITING_FOR_CHILDREN = "waiting_for_children"
    WAITING_FOR_BUDGET = "waiting_for_budget"
    WAITING_FOR_QUOTA = "waiting_for_quota"
    WAITING_FOR_CAPABLE_WORKER = "waiting_for_capable_worker"
    WAITING_FOR_LOCALITY_MATCH = "waiting_for_locality_match"
    PAUSED_BY_OPERATOR = "paused_by_operator"
    PAUSED_BY_POLICY = "paused_by_policy"
    PAUSED_BY_FLOW_CANCEL = "paused_by_flow_cancel"


class TerminalOutcome(StrEnum):
    """How an execution ended; `none` before its end."""

    NONE = "none"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    SKIPPED = "skipped"


class AttemptState(StrEnum):
    """The state of the current attempt, or of the next one."""

    NONE = "none"
    PENDING_FIRST_ATTEMPT = "pending_first_attempt"
    RUNNING_ATTEMPT = "running_attempt"
    ATTEMPT_INTERRUPTED = "attempt_interrupted"
    PENDING_RETRY_ATTEMPT = "pending_retry_attempt"
    PENDING_REPLAY_ATTEMPT = "pending_replay_attempt"
    ATTEMPT_TERMINAL = "attempt_terminal"


class PublicState(StrEnum):
    """The state that users see; computed from the other states."""

    WAITING = "waiting"
    DELAYED = "delayed"
    RATE_LIMITED = "rate_limited"
    WAITING_CHILDREN = "waiting_children"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    RESUMABLE = "resumable"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    SKIPPED = "skipped"

    @property
    def is_terminal(self) -> bool:
        return self in _TERMINAL


_TERMINAL = frozenset(
    {
        PublicState.COMPLETED,
        PublicState.FAILED,
        PublicState.CANCELLED,
        PublicState.EXPIRED,
        PublicState.SKIPPED,
    }
)


class AttemptType(StrEnum):
    """Why an attempt was started. `fallback` is reserved and never stored."""

    INITIAL = "initial"
    RETRY = "retry"
    RECLAIM = "reclaim"
    REPLAY = "replay"
    RESTART = "restart"


class AttemptOutcome(StrEnum):
    """How an attempt ended or was interrupted."""

    SUCCESS = "success"
    FAILED = "failed"
    RETRY = "retry"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    SKIPPED = "skipped"
    INTERRUPTED = "interrupted"
    WAITING_CHILDREN = "waiting_children"
    SUSPENDED = "suspended"
    RESTARTED = "restarted"
    LEASE_EXPIRED_RECLAIMABLE = "lease_expired_reclaimable"
    LEASE_REVOKED = "lease_revoked"
    INTERRUPTED_RECLAIMED = "interrupted_reclaimed"


class FailureClass(StrEnum):
    """How a failure is treated; only transient and infra_crash failures are retried."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    INFRA_CRASH = "infra_crash"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"

    @classmethod
    def of(cls, category: str) -> "FailureClass":
        """The class of the same name as the category; any other category is transient."""
        return cls(category) if category in cls.__members__.values() else cls.TRANSIENT


def derive_public_state(
    phase: LifecyclePhase,
    eligibility: EligibilityState,
    outcome: TerminalOutcome,
    *,
    resume_pending: bool,
) -> PublicState:
    """The public state of an execution; `ff.exec_core.public_state` is the same in SQL."""
    match phase:
        case LifecyclePhase.ACTIVE:
            return PublicState.ACTIVE
        case LifecyclePhase.SUSPENDED:
            return PublicState.SUSPENDED
        case LifecyclePhase.TERMINAL if outcome is TerminalOutcome.SUCCESS:
            return PublicState.COMPLETED
        case LifecyclePhase.TERMINAL if outcome is TerminalOutcome.NONE:
            return PublicState.FAILED
        case LifecyclePhase.TERMINAL:
            return PublicState(outcome.value)
        case LifecyclePhase.RUNNABLE:
            pass
    match eligibility:
        case EligibilityState.ELIGIBLE_NOW:
            return PublicState.RESUMABLE if resume_pending else PublicState.WAITING
        case EligibilityState.NOT_ELIGIBLE_UNTIL_TIME:
            return PublicState.DELAYED
        case EligibilityState.BLOCKED_BY_DEPENDENCIES:
            return PublicState.WAITING_CHILDREN
        case EligibilityState.BLOCKED_BY_BUDGET | EligibilityState.BLOCKED_BY_QUOTA:
            return PublicState.RATE_LIMITED
        case _:
            return PublicState.WAITING


class LaneState(StrEnum):
    """What a lane does: `accepts` new executions, `starts` those that it has."""

    ACTIVE = "active"
    PAUSED = "paused"
    DRAINING = "draining"
    DISABLED = "disabled"

    @property
    def accepts(self) -> bool:
        """Does the lane take new executions and replays?"""
        return self in (LaneState.ACTIVE, LaneState.PAUSED)

    @property
    def starts(self) -> bool:
        """Are executions of the lane claimed?"""
        return self in (LaneState.ACTIVE, LaneState.DRAINING)


class GrantKind(StrEnum):
    """What a grant allows."""

    CLAIM = "claim"
    RECLAIM = "reclaim"


class RoleAccess(StrEnum):
    """What a role of the database may do in the schema: all but change the schema, or only read."""

    RUNTIME = "runtime"
    READ = "read"


class KeyScope(StrEnum):
    """How long an idempotency key belongs to its execution."""

    WINDOW = "window"
    STARTED = "started"
    ENDED = "ended"
