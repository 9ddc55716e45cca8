"""What the outboxes and the registry of workers record."""

from enum import StrEnum


class LeaseEventType(StrEnum):
    """What happened to a lease."""

    ACQUIRED = "acquired"
    RENEWED = "renewed"
    EXPIRED = "expired"
    RECLAIMED = "reclaimed"
    REVOKED = "revoked"


class LeaseEventReason(StrEnum):
    """Why a lease ended before its expiry."""

    COMPLETED = "completed"
    FAILED = "failed"
    RETRY = "retry"
    DELAY = "delay"
    WAITING_CHILDREN = "waiting_children"
    SUSPENDED = "suspended"
    RESTARTED = "restarted"
    CANCELLED = "cancelled"
    RELEASED = "released"
    OPERATOR = "operator"
    DISCONNECTED = "disconnected"


class OperatorEventType(StrEnum):
    """What an operator did."""

    CANCELLED = "cancelled"
    COMPLETED = "completed"
    FAILED = "failed"
    DELAYED = "delayed"
    LEASE_REVOKED = "lease_revoked"
    PRIORITY_CHANGED = "priority_changed"
    REPLAYED = "replayed"
    BLOCKED = "blocked"
    UNBLOCKED = "unblocked"
    FLOW_CANCEL_REQUESTED = "flow_cancel_requested"
    FLOW_REPLAYED = "flow_replayed"
    LANE_STATE_CHANGED = "lane_state_changed"
    LANE_RETENTION_CHANGED = "lane_retention_changed"
    RETENTION_TRIMMED = "retention_trimmed"
    KEY_ROTATED = "key_rotated"
    RESUMED = "resumed"
    WOKEN = "woken"
    WAITPOINT_CLOSED = "waitpoint_closed"
    WAITPOINT_ANSWERED = "waitpoint_answered"
    SCHEDULE_CREATED = "schedule_created"
    SCHEDULE_UPDATED = "schedule_updated"
    SCHEDULE_PAUSED = "schedule_paused"
    SCHEDULE_RESUMED = "schedule_resumed"
    SCHEDULE_TRIGGERED = "schedule_triggered"
    SCHEDULE_BACKFILLED = "schedule_backfilled"
    SCHEDULE_DELETED = "schedule_deleted"
    BUDGET_CREATED = "budget_created"
    BUDGET_LIMITS_CHANGED = "budget_limits_changed"
    BUDGET_RESET = "budget_reset"
    BUDGET_RELEASED = "budget_released"
    USAGE_REPORTED = "usage_reported"
    EXECUTION_TAGGED = "execution_tagged"
    FLOW_TAGGED = "flow_tagged"
    WORKER_MARKED_DEAD = "worker_marked_dead"
    BULK_STARTED = "bulk_started"
    BULK_STOPPED = "bulk_stopped"
    LIMIT_CREATED = "limit_created"
    LIMIT_CHANGED = "limit_changed"
    LIMIT_DELETED = "limit_deleted"
    TOKEN_CREATED = "token_created"  # noqa: S105  a word
    TOKEN_REVOKED = "token_revoked"  # noqa: S105  a word


class WorkerEventKind(StrEnum):
    """What happened to a worker process."""

    REGISTERED = "registered"
    HEARTBEAT = "heartbeat"
    MARKED_DEAD = "marked_dead"
    TTL_SWEPT = "ttl_swept"


class CompletionOutcome(StrEnum):
    """How an execution ended, or `resumable`: a suspended execution can go on."""

    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    SKIPPED = "skipped"
    RESUMABLE = "resumable"
