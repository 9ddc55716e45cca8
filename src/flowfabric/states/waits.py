"""What a handler has done and waits for: journal, suspensions, waitpoints and signals."""

from enum import StrEnum
from typing import Final

from flowfabric.states.executions import BlockingReason

DIVERGENCE: Final = "divergence: "
"""How the detail of an execution begins that is suspended because its handler diverged."""


class JournalKind(StrEnum):
    """Which durable call of a handler an entry of the journal belongs to."""

    STEP = "step"
    NOW = "now"
    PATCH = "patch"
    VERSION = "version"
    SLEEP = "sleep"
    SIGNAL = "signal"
    WAITPOINT = "waitpoint"
    WAIT = "wait"
    SELECT = "select"
    CHILDREN = "children"
    COMPENSATION = "compensation"
    MARK = "mark"
    """Not a call: which generation of the journal this is."""


class JournalState(StrEnum):
    """Whether a durable call is finished; an entry that is done or failed never changes."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"


class SuspensionReason(StrEnum):
    """Why an execution is suspended."""

    WAITING_FOR_SIGNAL = "waiting_for_signal"
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    WAITING_FOR_CALLBACK = "waiting_for_callback"
    WAITING_FOR_TOOL_RESULT = "waiting_for_tool_result"
    WAITING_FOR_OPERATOR_REVIEW = "waiting_for_operator_review"
    PAUSED_BY_POLICY = "paused_by_policy"
    PAUSED_BY_BUDGET = "paused_by_budget"
    STEP_BOUNDARY = "step_boundary"
    MANUAL_PAUSE = "manual_pause"

    @property
    def blocking_reason(self) -> BlockingReason:
        """What the execution waits for meanwhile."""
        return _BLOCKING_REASONS[self]


_BLOCKING_REASONS = {
    SuspensionReason.WAITING_FOR_SIGNAL: BlockingReason.WAITING_FOR_SIGNAL,
    SuspensionReason.WAITING_FOR_APPROVAL: BlockingReason.WAITING_FOR_APPROVAL,
    SuspensionReason.WAITING_FOR_CALLBACK: BlockingReason.WAITING_FOR_CALLBACK,
    SuspensionReason.WAITING_FOR_TOOL_RESULT: BlockingReason.WAITING_FOR_TOOL_RESULT,
    SuspensionReason.WAITING_FOR_OPERATOR_REVIEW: BlockingReason.PAUSED_BY_OPERATOR,
    SuspensionReason.PAUSED_BY_POLICY: BlockingReason.PAUSED_BY_POLICY,
    SuspensionReason.PAUSED_BY_BUDGET: BlockingReason.WAITING_FOR_BUDGET,
    SuspensionReason.STEP_BOUNDARY: BlockingReason.WAITING_FOR_SIGNAL,
    SuspensionReason.MANUAL_PAUSE: BlockingReason.PAUSED_BY_OPERATOR,
}


class SuspensionRequester(StrEnum):
    """Which part of the system asked for a suspension."""

    WORKER = "worker"
    OPERATOR = "operator"
    POLICY = "policy"
    SYSTEM_TIMEOUT_POLICY = "system_timeout_policy"


class TimeoutBehavior(StrEnum):
    """What happens to a suspended execution when its timeout has passed."""

    FAIL = "fail"
    CANCEL = "cancel"
    EXPIRE = "expire"
    AUTO_RESUME = "auto_resume_with_timeout_signal"
    ESCALATE = "escalate"


PROACTIVE_CLOSE: Final = "proactive_close"
"""Why a waitpoint was closed, unless its closer says otherwise."""


class WaitpointState(StrEnum):
    """Pending: created ahead, signals are buffered; active: a suspension waits for it; closed."""

    PENDING = "pending"
    ACTIVE = "active"
    CLOSED = "closed"


class SignalEffect(StrEnum):
    """What a signal did when it was accepted."""

    APPENDED_TO_WAITPOINT = "appended_to_waitpoint"
    RESUME_CONDITION_SATISFIED = "resume_condition_satisfied"
    BUFFERED_FOR_PENDING_WAITPOINT = "buffered_for_pending_waitpoint"
    BUFFERED_IN_INBOX = "buffered_in_inbox"
