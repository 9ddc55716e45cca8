"""A handle on a started flow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, overload
from uuid import UUID

from flowfabric.app.member import Member
from flowfabric.client.flow_results import FlowResults
from flowfabric.client.handle import Handle
from flowfabric.client.list_all_members import list_all_members
from flowfabric.errors import (
    FlowCancelled,
    FlowFailed,
    NotFound,
    ResultDecodeError,
    ResultTimeout,
)
from flowfabric.policy import timeout_seconds
from flowfabric.states import (
    CancellationPolicy,
    DerivedFlowState,
    PublicState,
    SiblingCancelReason,
)
from flowfabric.wire import read_untyped

if TYPE_CHECKING:
    from flowfabric.client.client import Client
    from flowfabric.engine.executions.read_outcomes import ExecutionOutcome
    from flowfabric.engine.flows.describe_flow import FlowSnapshot
    from flowfabric.engine.flows.list_flow_members import FlowMember
    from flowfabric.engine.operators.replay_flow import ReplayedFlow


R = TypeVar("R")


class FlowHandle:
    """One flow: wait for its results, describe it, cancel it, replay it."""

    def __init__(
        self,
        client: Client,
        flow_id: UUID,
        *,
        created: bool,
        drawn: Mapping[str, Member[Any]] | None = None,
    ) -> None:
        """`drawn` are the members by name, which give results their types."""
        self._client, self.flow_id = client, flow_id
        self._drawn: Mapping[str, Member[Any]] = drawn or {}
        self.created = created
        """False when the idempotency key matched a flow that was started before."""

    def __repr__(self) -> str:
        return f"<handle of flow {self.flow_id}>"

    async def result(self, timeout: float | timedelta | None = None) -> FlowResults:
        """The results of the members, by name, once every member that is needed has ended.

        Needed are the members that no other member waits for, and those that undecided joins of
        needed members wait for. Each result is what its task returned, decoded to the annotation of
        the task, if the handle comes from `client.start(flow)`. Members that were skipped or
        cancelled as not needed, that still run, or that failed without failing the flow, are left
        out, and so are the children that handlers of members started. Raises `FlowFailed`,
        `FlowCancelled`, `ResultTimeout`, `NotFound`.
        """
        flow = await self._settled_within(timeout_seconds(timeout))
        members = await self.members()
        if flow.outcome is DerivedFlowState.CANCELLED:
            raise FlowCancelled(self.flow_id, flow.cancel_reason)
        if flow.outcome is DerivedFlowState.FAILED:
            lost = [member for member in members if member.public_state in _UNSUCCESSFUL]
            causes = [member for member in lost if member.reason not in _UNNEEDED] or lost
            failures = [
                f"{member.name or member.execution_id}: {member.reason}" for member in causes
            ] or [
                f"{member.name or member.execution_id}: skipped, although its upstreams have"
                " succeeded since; replay the flow"
                for member in members
                if member.public_state is PublicState.SKIPPED
            ]
            raise FlowFailed(self.flow_id, failures)
        return await self._results(members)

    async def describe(self) -> FlowSnapshot:
        """The flow with its state and the numbers of its members; raises `NotFound`."""
        found = await self._client.engine.describe_flow(self.flow_id)
        if found is None:
            raise NotFound("flow", self.flow_id)
        return found

    async def state(self) -> DerivedFlowState:
        """The state of the flow now; raises `NotFound`."""
        return (await self.describe()).derived_state

    async def members(self) -> list[FlowMember]:
        """Every member with its state, in the order in which the members were added.

        The children that handlers started (`is_child`) come last.
        """
        return await list_all_members(self._client.engine, self.flow_id)

    @overload
    async def member(self, member: Member[R]) -> Handle[R]: ...
    @overload
    async def member(self, member: str) -> Handle[Any]: ...
    async def member(self, member: Member[Any] | str) -> Handle[Any]:
        """A handle on this member, or on the member of this name; raises `NotFound`.

        The result of the handle has the type of the task, as in `result`.
        """
        drawn = self._drawn.get(member) if isinstance(member, str) else member
        name = member if isinstance(member, str) else member.name
        for each in await self.members():
            if each.name == name and (isinstance(member, str) or _ran(each, member)):
                return Handle(
                    self._client,
                    each.execution_id,
                    created=False,
                    known_to_exist=True,
                    read_result=_reader(each, drawn),
                )
        raise NotFound("member", name)

    async def cancel(
        self,
        reason: str = "",
        *,
        policy: CancellationPolicy | str = CancellationPolicy.CANCEL_ALL,
    ) -> None:
        """Cancel every member that has not ended, or as `policy` says; may be repeated."""
        await self._client.engine.cancel_flow(
            self.flow_id, reason=reason, policy=policy, requester=self._client.identity
        )

    async def replay(self, reason: str | None = None, *, preview: bool = False) -> ReplayedFlow:
        """Run again what failed, expired or was cancelled, and what was skipped because of that.

        Members that succeeded keep their results; members that the flow did without stay as they
        ended. A cancelled flow is open again. With `preview` nothing changes, and the answer says
        what would. Raises `NotFound`, and `FlowAlreadyTerminal` while the flow is being cancelled.
        """
        return await self._client.engine.replay_flow(
            self.flow_id, preview=preview, actor=self._client.identity, reason=reason
        )

    async def _settled_within(self, seconds: float | None) -> FlowSnapshot:
        if seconds is not None and seconds <= 0:
            flow = await self.describe()
            if flow.outcome is not None:
                return flow
        try:
            async with asyncio.timeout(seconds):
                return await self._settled()
        except TimeoutError:
            raise ResultTimeout(self.flow_id, seconds or 0.0) from None

    async def _settled(self) -> FlowSnapshot:
        """The flow, once nothing that is needed is left to run."""
        while True:
            if await self._client.settled_flows.wait(self.flow_id) is None:
                raise NotFound("flow", self.flow_id)
            flow = await self.describe()
            if flow.outcome is not None:  # None again if a member was replayed meanwhile
                return flow

    async def _results(self, members: list[FlowMember]) -> FlowResults:
        done = [
            each
            for each in members
            if each.public_state is PublicState.COMPLETED and not (each.is_child and not each.name)
        ]
        outcomes = await self._client.engine.read_outcomes([each.execution_id for each in done])
        return FlowResults(
            (each.name or str(each.execution_id), self._result(each, outcomes[each.execution_id]))
            for each in done
            if each.execution_id in outcomes
        )

    def _result(self, member: FlowMember, outcome: ExecutionOutcome) -> Any:
        read = _reader(member, self._drawn.get(member.name or ""))
        try:
            return read(outcome.result, outcome.result_encoding)
        except ResultDecodeError as error:
            raise error.of(member.execution_id) from error.__cause__


def _reader(
    member: FlowMember, drawn: Member[Any] | None
) -> Callable[[bytes | None, str | None], Any]:
    """Decodes the result of a member to what its task returns, if the task is known."""
    # The same idempotency key may have found a flow that was drawn otherwise.
    if drawn is None or not _ran(member, drawn):
        return read_untyped
    return drawn.call.task.read_result


def _ran(member: FlowMember, drawn: Member[Any]) -> bool:
    return member.execution_kind == drawn.call.task.kind


_UNSUCCESSFUL = (PublicState.FAILED, PublicState.CANCELLED, PublicState.EXPIRED)
_UNNEEDED = tuple(SiblingCancelReason)
