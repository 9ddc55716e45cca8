"""The children of one call of a handler, and the types of calls and results."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypedDict, TypeVar
from uuid import UUID

from flowfabric.budgets import attach
from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.errors import ChildFailed, ResultDecodeError, invalid_input
from flowfabric.ids import ExecutionId, GroupId, child_id, children_group_id
from flowfabric.limits import refuse_merged
from flowfabric.states import PublicState
from flowfabric.tracing import with_traceparent

if TYPE_CHECKING:
    from flowfabric.engine.executions.read_outcomes import ExecutionOutcome
    from flowfabric.limits import Merged
    from flowfabric.policy import ExecutionPolicy

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class ChildLimit(Protocol):
    """A limit of an application; `flowfabric.AppLimit` is one."""

    @property
    def quota_policy_id(self) -> UUID: ...


class ChildTaskLimit(Protocol):
    """The limit of a task."""

    @property
    def limit(self) -> ChildLimit: ...


class ChildTask(Protocol[R_co]):
    """The settings of a task that a child needs; `flowfabric.Task` is one."""

    @property
    def kind(self) -> str: ...
    @property
    def lane(self) -> str: ...
    @property
    def encoding(self) -> str: ...
    @property
    def limit(self) -> ChildTaskLimit | None: ...
    @property
    def merged(self) -> Merged | None: ...
    @property
    def priority(self) -> int: ...
    @property
    def requires(self) -> tuple[str, ...]: ...
    @property
    def policy(self) -> ExecutionPolicy | None: ...
    def read_result(self, result: bytes | None, _encoding: str | None = None, /) -> R_co: ...


class ChildCall(Protocol[R_co]):
    """A task with its arguments; `flowfabric.Call` is one."""

    @property
    def task(self) -> ChildTask[R_co]: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def limit_key(self) -> str | None: ...


def check_call(call: object, *, field: str) -> None:
    """Raise `ValidationError(invalid_input)` for what is no task with its arguments."""
    if not hasattr(call, "task") or not hasattr(call, "payload"):
        name = type(call).__name__
        raise invalid_input(field, None, f"must be a call, such as task.call(...), not a {name}")


def check_calls(calls: Iterable[ChildCall[R]]) -> list[ChildCall[R]]:
    """The calls; raises `ValidationError(invalid_input)` for what are none."""
    if isinstance(calls, str) or not hasattr(calls, "__iter__"):
        raise invalid_input("calls", None, f"must be a list of calls, not a {type(calls).__name__}")
    found = list(calls)
    for call in found:
        check_call(call, field="calls")
    return found


class Child(Generic[R]):
    """A child that runs while its parent continues."""

    def __init__(
        self,
        execution_id: ExecutionId,
        result: Callable[[], Coroutine[Any, Any, R]],
        *,
        group: GroupId | None = None,
    ) -> None:
        self.execution_id = execution_id
        self.group = group
        """The join by which its parent waits for it; None if it is detached."""
        self._result = result

    def __repr__(self) -> str:
        return f"<child {self.execution_id}>"

    async def result(self) -> R:
        """The child's result, once it has ended; raises `ChildFailed` if it did not succeed."""
        return await self._result()


class _Of(TypedDict):
    generation: int
    name: str | None


class ChildBatch(Generic[R]):
    """The children of one call, and the join that waits for them."""

    def __init__(
        self,
        parent: ExecutionId,
        position: int,
        calls: Sequence[ChildCall[R]],
        *,
        generation: int = 0,
        name: str | None = None,
    ) -> None:
        self._parent, self._position = parent, position
        self._of: _Of = {"generation": generation, "name": name}
        self.group: GroupId = children_group_id(parent, position, **self._of)
        self.budgets: tuple[str, ...] = ()
        """The budgets that the children are attached to, besides those of their tasks."""
        for call in calls:
            refuse_merged(call.task.merged, call.task.kind, "a child")
        self.calls = {
            child_id(parent, position, index, kind=call.task.kind, **self._of): call
            for index, call in enumerate(calls)
        }

    def groups(self) -> dict[GroupId, ExecutionId]:
        """The join of each child, for children that are waited for one by one."""
        return {
            children_group_id(self._parent, self._position, index, **self._of): child
            for index, child in enumerate(self.calls)
        }

    def execution(self, child: ExecutionId) -> NewExecution:
        """The execution to create for this child."""
        call = self.calls[child]
        limit = call.task.limit
        return NewExecution(
            execution_id=child,
            execution_kind=call.task.kind,
            lane_id=call.task.lane,
            input_payload=call.payload,
            payload_encoding=call.task.encoding,
            priority=call.task.priority,
            creator_identity=f"parent {self._parent}",
            required_capabilities=call.task.requires,
            policy=attach(call.task.policy, self.budgets),
            tags=with_traceparent({}),
            quota_policy_id=None if limit is None else limit.limit.quota_policy_id,
            limit_key=call.limit_key,
        )

    def result(self, outcome: ExecutionOutcome) -> R:
        """The decoded result of a child; raises `ChildFailed` if it did not succeed.

        Raises `ResultDecodeError` if the result is not of the type that the task declares.
        """
        if outcome.public_state is not PublicState.COMPLETED:
            raise child_failed(outcome)
        task = self.calls[outcome.execution_id].task
        try:
            return task.read_result(outcome.result, outcome.result_encoding)
        except ResultDecodeError as error:
            raise error.of(outcome.execution_id) from error.__cause__


def child_failed(outcome: ExecutionOutcome) -> ChildFailed:
    """The error for a child that ended without a result."""
    return ChildFailed(
        outcome.execution_id,
        outcome.failure_category or outcome.public_state.value,
        outcome.failure_reason or outcome.cancellation_reason,
    )
