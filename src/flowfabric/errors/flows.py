"""Errors of flows and their graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from flowfabric.errors.base import FlowFabricError, OperationTimeout
from flowfabric.errors.state import Conflict, Contention, StateError

if TYPE_CHECKING:
    from flowfabric.ids import ExecutionId


class FlowAlreadyTerminal(StateError):
    """The flow was cancelled: its graph cannot change, and its members cannot be replayed alone.

    `replay_flow` opens the flow again, unless the cancel still has `pending` members to end.
    """

    code = "flow_already_terminal"

    def __init__(self, flow_id: UUID, pending: int = 0) -> None:
        yet = f", and {pending} of its members have yet to end: repeat the call then"
        super().__init__(f"flow {flow_id} was cancelled{yet if pending else ''}")
        self.flow_id, self.pending = flow_id, pending


class FlowAlreadyStarted(StateError):
    """The flow was started before: a `Flow` is drawn for one run.

    For another run, draw another flow. A start that may be repeated has an idempotency key.
    """

    code = "flow_already_started"

    def __init__(self, flow_kind: str, flow_id: UUID) -> None:
        super().__init__(
            f"flow {flow_kind!r} was started already, as {flow_id}: draw a new Flow for another"
            " run, give start an idempotency_key if it may be repeated, or get a handle with"
            f" client.flow({str(flow_id)!r})"
        )
        self.flow_kind, self.flow_id = flow_kind, flow_id


class ExecutionNotInFlow(StateError):
    """The execution is not a member of the flow."""

    code = "execution_not_in_flow"

    def __init__(self, execution_id: object, flow_id: UUID) -> None:
        super().__init__(f"execution {execution_id} is not a member of flow {flow_id}")
        self.execution_id, self.flow_id = execution_id, flow_id


class ExecutionAlreadyInFlow(Conflict):
    """The execution is a member of another flow, and cannot change its flow."""

    code = "execution_already_in_flow"

    def __init__(self, execution_id: ExecutionId, flow_id: UUID) -> None:
        super().__init__(f"execution {execution_id} is a member of flow {flow_id}")
        self.execution_id, self.flow_id = execution_id, flow_id


class SelfReferencingEdge(Conflict):
    """The edge leads from an execution to itself."""

    code = "self_referencing_edge"

    def __init__(self, execution_id: object) -> None:
        super().__init__(f"execution {execution_id} cannot depend on itself")
        self.execution_id = execution_id


class CycleDetected(Conflict):
    """The edge would close a cycle, and no member on the cycle could ever run."""

    code = "cycle_detected"

    def __init__(self, flow_id: UUID, around: object) -> None:
        super().__init__(f"flow {flow_id}: an edge would close a cycle through {around}")
        self.flow_id = flow_id


class DependencyAlreadyExists(Conflict):
    """The edge exists already, as `existing`.

    A caller that repeats a call compares `existing` with the edge that it meant to add.
    """

    code = "dependency_already_exists"

    def __init__(self, existing: object, edge_id: UUID) -> None:
        super().__init__(f"edge {edge_id} exists already")
        self.existing, self.edge_id = existing, edge_id


class StaleGraphRevision(Contention):
    """The graph changed since the caller read it: read the flow again, then repeat the call."""

    code = "stale_graph_revision"

    def __init__(self, flow_id: UUID, *, expected: int, current: int) -> None:
        super().__init__(f"flow {flow_id} is at graph revision {current}, not {expected}")
        self.flow_id, self.expected, self.current = flow_id, expected, current


class DepsNotSatisfied(StateError):
    """The join of the execution is not satisfied yet."""

    code = "deps_not_satisfied"

    def __init__(self, execution_id: ExecutionId) -> None:
        super().__init__(f"execution {execution_id} still waits for its dependencies")
        self.execution_id = execution_id


class NotBlockedByDeps(StateError):
    """The execution does not wait for dependencies."""

    code = "not_blocked_by_deps"

    def __init__(self, execution_id: ExecutionId, public_state: str) -> None:
        super().__init__(f"execution {execution_id} is {public_state}, not waiting_children")
        self.execution_id, self.public_state = execution_id, public_state


class ExecutionNotRunnable(StateError):
    """The execution is running or suspended, so it cannot be made eligible."""

    code = "not_runnable"

    def __init__(self, execution_id: ExecutionId, public_state: str) -> None:
        super().__init__(f"execution {execution_id} is {public_state}, not runnable")
        self.execution_id, self.public_state = execution_id, public_state


class ExecutionTerminal(StateError):
    """The execution has ended."""

    code = "terminal"

    def __init__(self, execution_id: ExecutionId, public_state: str) -> None:
        super().__init__(f"execution {execution_id} has ended: {public_state}")
        self.execution_id, self.public_state = execution_id, public_state


class FlowCancelPending(OperationTimeout):
    """The flow is cancelled, but members had not ended in time; the reconciler ends them.

    `pending` is how many, None if that is unknown. Their own transactions may still end them
    otherwise; no downstream of them runs.
    """

    def __init__(self, flow_id: UUID, seconds: float, pending: int | None) -> None:
        super().__init__("cancel_flow", seconds)
        members = "members" if pending is None else f"{pending} of its members"
        self.args = (f"{self}: flow {flow_id} is cancelled, {members} have yet to end",)
        self.flow_id, self.pending = flow_id, pending


class FlowFailed(FlowFabricError):
    """The flow ended with a failed member that it needed; raised by `handle.result()`.

    `members` says which members failed, and why.
    """

    kind = "outcome"
    code = "flow_failed"

    def __init__(self, flow_id: UUID, members: list[str]) -> None:
        super().__init__(f"flow {flow_id} failed: {'; '.join(members)}")
        self.flow_id, self.members = flow_id, members


class FlowCancelled(FlowFabricError):
    """The flow was cancelled; raised by `handle.result()`."""

    kind = "outcome"
    code = "flow_cancelled"

    def __init__(self, flow_id: UUID, reason: str | None) -> None:
        super().__init__(f"flow {flow_id} was cancelled: {reason}")
        self.flow_id, self.reason = flow_id, reason
