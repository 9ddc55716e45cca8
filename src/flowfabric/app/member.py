"""A member of a flow: one call with its settings, and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from flowfabric.app.check_call import check_upstreams
from flowfabric.app.feed import check_inputs, passing_ref
from flowfabric.app.task import Call
from flowfabric.app.task_policy import task_policy
from flowfabric.budgets import attach
from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.joins import AllOf, JoinPolicy
from flowfabric.limits import quota_policy_id
from flowfabric.policy import ExecutionPolicy, Retry, TimeoutPolicy
from flowfabric.tracing import with_traceparent

if TYPE_CHECKING:
    from flowfabric.app.flow import Flow

R = TypeVar("R")


class MemberSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one member; None means the setting of its task."""

    lane: str | None = None
    priority: int | None = None
    delay: float | timedelta | None = None
    delay_until: datetime | None = None
    deadline: float | timedelta | None = None
    deadline_at: datetime | None = None
    tags: Mapping[str, str] | None = None
    retry: Retry | None = None
    timeout: float | timedelta | None = None
    limit_key: str | None = None

    def policy(self, of_task: ExecutionPolicy | None) -> ExecutionPolicy | None:
        """The policy of the task with the retries and the timeout that are given here."""
        given = task_policy(self.retry, self.timeout, None, None)
        if given is None or of_task is None:
            return given or of_task
        limits = of_task.timeout_policy
        if self.timeout is not None and given.timeout_policy is not None:
            limits = msgspec.structs.replace(
                limits or TimeoutPolicy(), attempt_timeout=given.timeout_policy.attempt_timeout
            )
        return msgspec.structs.replace(
            of_task,
            retry_policy=of_task.retry_policy if self.retry is None else given.retry_policy,
            timeout_policy=limits,
        )


class Member(Generic[R]):
    """One call of a flow; `after` says what it waits for."""

    def __init__(
        self,
        flow: Flow,
        call: Call[R],
        name: str,
        settings: MemberSettings,
        missing: frozenset[str] = frozenset(),
    ) -> None:
        self._flow, self.call, self.name, self.settings = flow, call, name, settings
        self.missing = missing
        """The arguments that the call lacks: upstreams must feed them."""
        self.upstreams: dict[str, str | None] = {}
        """The members it waits for, by name, and how their results are passed to it, if they are.

        `"result"` is the whole input, `"argument:n"` the argument `n`.
        """
        self.policy: JoinPolicy = AllOf()

    def __repr__(self) -> str:
        return f"<member {self.name!r} of flow {self._flow.kind!r}>"

    def after(
        self, *members: Member[Any], policy: JoinPolicy | None = None, feed: bool | str = False
    ) -> Member[R]:
        """Wait for these members: for all, or as `policy` says (`AnyOf()`, `Quorum(2)`).

        With `feed=True` the result of the upstream becomes the argument of this member that it
        fits, or its whole input if it is an object with its arguments; `feed="n"` names the
        argument. It replaces what was given to `call`; `partial` leaves it out. Raises
        `ValidationError` for a result that does not fit, for a member of another flow, for one it
        already waits for, and for a policy that differs from that of the other upstreams;
        `FlowAlreadyStarted`.
        """
        self._flow.once.check()
        check_upstreams(members, policy)
        wanted = AllOf() if policy is None else policy
        if self.upstreams and wanted != self.policy:
            raise invalid_input(
                "policy",
                wanted,
                f"differs from {self.policy!r}, with which {self.name!r} waits for"
                f" {', '.join(map(repr, self.upstreams))}: a member has one policy for all its"
                " upstreams; give all of them to one after(...), or add a member in between",
            )
        found: dict[str, str | None] = {}
        for member in members:
            if self._flow.members.get(member.name) is not member:
                raise invalid_input("after", member.name, f"is not a member of {self._flow.kind!r}")
            if member.name in self.upstreams or member.name in found:
                raise invalid_input(
                    "after", member.name, f"is an upstream of {self.name!r} already"
                )
            found[member.name] = passing_ref(member, self, feed)
        if wanted == AllOf() and any(found.values()):
            check_inputs(self, {**self.upstreams, **found})
        self.upstreams.update(found)
        self.policy = wanted
        return self

    def execution(
        self, execution_id: ExecutionId, *, namespace: str, creator: str | None
    ) -> NewExecution:
        """The execution of this member; raises `ValidationError` for an invalid setting."""
        task, settings = self.call.task, self.settings
        return NewExecution(
            execution_id=execution_id,
            execution_kind=task.kind,
            lane_id=settings.lane or task.lane,
            namespace=namespace,
            input_payload=self.call.payload,
            payload_encoding=task.encoding,
            priority=task.priority if settings.priority is None else settings.priority,
            creator_identity=creator,
            tags=with_traceparent(settings.tags or {}),
            required_capabilities=task.requires,
            policy=attach(settings.policy(task.policy), self._flow.budgets),
            delay=settings.delay,
            delay_until=settings.delay_until,
            deadline=settings.deadline,
            execution_deadline_at=settings.deadline_at,
            member_name=self.name,
            quota_policy_id=None
            if task.limit is None
            else quota_policy_id(namespace, task.limit.limit.name),
            limit_key=self.call.limit_key if settings.limit_key is None else settings.limit_key,
        )
