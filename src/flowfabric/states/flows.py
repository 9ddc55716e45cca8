"""Flows, their edges and joins."""

from enum import StrEnum


class FlowState(StrEnum):
    """The stored state of a flow; every other state is computed from its members."""

    OPEN = "open"
    CANCELLED = "cancelled"


class DerivedFlowState(StrEnum):
    """The state of a flow, computed from its members."""

    OPEN = "open"
    RUNNING = "running"
    BLOCKED = "blocked"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_settled(self) -> bool:
        """Has every member ended?"""
        return self in (self.COMPLETED, self.FAILED, self.CANCELLED)


class CancellationPolicy(StrEnum):
    """Which members a flow cancellation ends."""

    CANCEL_FLOW_ONLY = "cancel_flow_only"
    CANCEL_ALL = "cancel_all"
    CANCEL_PENDING = "cancel_pending"


class EdgeState(StrEnum):
    """A pending edge has no effect until it is applied."""

    PENDING = "pending"
    APPLIED = "applied"


class EdgeResolution(StrEnum):
    """Whether the upstream of an edge succeeded."""

    UNRESOLVED = "unresolved"
    SATISFIED = "satisfied"
    IMPOSSIBLE = "impossible"


class WaitsAs(StrEnum):
    """What an execution waits for by a join."""

    MEMBER = "member"
    """A flow member waits for its upstreams, before it runs."""
    CHILDREN = "children"
    """A handler waits for its children."""


class GroupState(StrEnum):
    """Whether a join is decided: satisfied, or impossible to satisfy."""

    PENDING = "pending"
    SATISFIED = "satisfied"
    IMPOSSIBLE = "impossible"


class GroupPolicyKind(StrEnum):
    """How many upstreams must succeed to satisfy a join."""

    ALL_OF = "all_of"
    ANY_OF = "any_of"
    QUORUM = "quorum"


class OnSatisfied(StrEnum):
    """What happens to the remaining upstreams when a join is satisfied."""

    CANCEL_REMAINING = "cancel_remaining"
    LET_RUN = "let_run"


class SiblingCancelReason(StrEnum):
    """Why an upstream that is no longer needed was cancelled."""

    SIBLING_QUORUM_SATISFIED = "sibling_quorum_satisfied"
    SIBLING_QUORUM_IMPOSSIBLE = "sibling_quorum_impossible"
    PARENT_ENDED = "parent_ended"
