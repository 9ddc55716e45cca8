"""The words of every state: the same words as in the CHECK constraints of the schema.

access      roles of API tokens, and their scopes
executions  executions, their attempts, lanes and grants
events      what the outboxes and the registry of workers record
flows       flows, their edges and joins
streams     frames, and why a stream is closed
waits       journal, suspensions, waitpoints and signals
schedules   schedules and what became of their instants
budgets     what a hard limit does
"""

from flowfabric.states.access import Role, Scope
from flowfabric.states.budgets import EnforcementMode
from flowfabric.states.bulk import BulkActionKind, BulkState
from flowfabric.states.events import (
    CompletionOutcome,
    LeaseEventReason,
    LeaseEventType,
    OperatorEventType,
    WorkerEventKind,
)
from flowfabric.states.executions import (
    AttemptOutcome,
    AttemptState,
    AttemptType,
    BlockingReason,
    EligibilityState,
    FailureClass,
    GrantKind,
    KeyScope,
    LaneState,
    LifecyclePhase,
    OwnershipState,
    PublicState,
    RoleAccess,
    TerminalOutcome,
    derive_public_state,
)
from flowfabric.states.flows import (
    CancellationPolicy,
    DerivedFlowState,
    EdgeResolution,
    EdgeState,
    FlowState,
    GroupPolicyKind,
    GroupState,
    OnSatisfied,
    SiblingCancelReason,
    WaitsAs,
)
from flowfabric.states.schedules import (
    ScheduleOutcome,
    ScheduleOverlap,
    ScheduleSource,
    ScheduleSpecKind,
    ScheduleState,
)
from flowfabric.states.streams import (
    FrameKind,
    FrameMode,
    FrameVisibility,
    PatchKind,
    StreamClosedReason,
)
from flowfabric.states.waits import (
    DIVERGENCE,
    JournalKind,
    JournalState,
    SignalEffect,
    SuspensionReason,
    SuspensionRequester,
    TimeoutBehavior,
    WaitpointState,
)

__all__ = [
    "DIVERGENCE",
    "AttemptOutcome",
    "AttemptState",
    "AttemptType",
    "BlockingReason",
    "BulkActionKind",
    "BulkState",
    "CancellationPolicy",
    "CompletionOutcome",
    "DerivedFlowState",
    "EdgeResolution",
    "EdgeState",
    "EligibilityState",
    "EnforcementMode",
    "FailureClass",
    "FlowState",
    "FrameKind",
    "FrameMode",
    "FrameVisibility",
    "GrantKind",
    "GroupPolicyKind",
    "GroupState",
    "JournalKind",
    "JournalState",
    "KeyScope",
    "LaneState",
    "LeaseEventReason",
    "LeaseEventType",
    "LifecyclePhase",
    "OnSatisfied",
    "OperatorEventType",
    "OwnershipState",
    "PatchKind",
    "PublicState",
    "Role",
    "RoleAccess",
    "ScheduleOutcome",
    "ScheduleOverlap",
    "ScheduleSource",
    "ScheduleSpecKind",
    "ScheduleState",
    "Scope",
    "SiblingCancelReason",
    "SignalEffect",
    "StreamClosedReason",
    "SuspensionReason",
    "SuspensionRequester",
    "TerminalOutcome",
    "TimeoutBehavior",
    "WaitpointState",
    "WaitsAs",
    "WorkerEventKind",
    "derive_public_state",
]
