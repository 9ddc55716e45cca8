"""A handle on a started flow."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from flowfabric.client.handle import Handle
from flowfabric.client.list_all_members import list_all_members
from flowfabric.engine.flows.describe_flow import FlowSnapshot
from flowfabric.engine.flows.list_flow_members import FlowMember
from flowfabric.engine.operators.replay_flow import ReplayedFlow
from flowfabric.errors import FlowCancelled, FlowFailed, NotFound, ResultTimeout
from flowfabric.states import CancellationPolicy, DerivedFlowState, PublicState
from flowfabric.wire import read_untyped

if TYPE_CHECKING:
    from flowfabric.client.client import Client

_FIRST_PAUSE = 0.02
_LAST_PAUSE = 1.0


class FlowHandle:
    """One flow: wait for its results, describe it, cancel it, replay it."""

    def __init__(self, client: Client, flow_id: UUID, *, created: bool) -> None:
        self._client, self.flow_id = client, flow_id
        self.created = created
        """False when the idempotency key matched a flow that was started before."""

    def __repr__(self) -> str:
        return f"<handle of flow {self.flow_id}>"

    async def result(self, timeout: float | timedelta | None = None) -> dict[str, Any]:
        """The results of the members, by name, once every member has ended.

        Members that were skipped or cancelled as not needed, or that failed without failing the
        flow, are left out, and so are the children that handlers of members started. Raises
        `FlowFailed`, `FlowCancelled`, `ResultTimeout`, `NotFound`.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        try:
            async with asyncio.timeout(seconds):
                flow = await self._settled()
        except TimeoutError:
            raise ResultTimeout(self.flow_id, seconds or 0.0) from None
        members = await self.members()
        if flow.derived_state is DerivedFlowState.CANCELLED:
            raise FlowCancelled(self.flow_id, flow.cancel_reason)
        if flow.derived_state is DerivedFlowState.FAILED:
            failures = [
                f"{member.name or member.execution_id}: {member.reason}"
                for member in members
                if member.public_state in _UNSUCCESSFUL
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
        """Every member with its state, also the children that handlers started (`is_child`)."""
        return await list_all_members(self._client.engine, self.flow_id)

    async def member(self, name: str) -> Handle[Any]:
        """A handle on the member of this name; raises `NotFound`."""
        for member in await self.members():
            if member.name == name:
                return self._client.handle(member.execution_id)
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

    async def _settled(self) -> FlowSnapshot:
        """Poll until every member has ended; the pauses between two polls grow."""
        pause = _FIRST_PAUSE
        while True:
            flow = await self.describe()
            if flow.derived_state.is_settled and flow.members.total > 0:
                return flow
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LAST_PAUSE)

    async def _results(self, members: list[FlowMember]) -> dict[str, Any]:
        done = [
            each
            for each in members
            if each.public_state is PublicState.COMPLETED and not (each.is_child and not each.name)
        ]
        outcomes = await self._client.engine.read_outcomes([each.execution_id for each in done])
        return {
            each.name or str(each.execution_id): read_untyped(
                outcomes[each.execution_id].result, outcomes[each.execution_id].result_encoding
            )
            for each in done
            if each.execution_id in outcomes
        }


_UNSUCCESSFUL = (PublicState.FAILED, PublicState.CANCELLED, PublicState.EXPIRED)
