"""Executions and flows over HTTP: submitted, read and controlled."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

import msgspec

from flowfabric.api.forms import Wanted, form
from flowfabric.api.packed_ids import pack_ids
from flowfabric.engine.events import read_history
from flowfabric.engine.executions import (
    explain_execution,
    list_attempts,
    locate_execution_by_key,
)
from flowfabric.engine.executions import read_execution_info as execution_info
from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
from flowfabric.engine.executions.read_outcomes import ExecutionOutcome
from flowfabric.engine.executions.search_executions import FoundExecution, Search, SearchPage
from flowfabric.engine.flows import describe_flow, list_flow_members
from flowfabric.engine.flows.cancel_flow_header import FlowAlreadyCancelled, FlowCancelAccepted
from flowfabric.engine.flows.new_flow import NewEdge, NewFlow
from flowfabric.engine.flows.submission import FlowSubmitted
from flowfabric.engine.joins import read_upstream_results
from flowfabric.engine.journal import list_steps, read_compensation
from flowfabric.engine.lifecycle import create_unique_execution, debounce_execution
from flowfabric.engine.lifecycle.alike_batch import AlikeBatch, ids_of
from flowfabric.engine.lifecycle.create_execution import Created, Creation, NewExecution
from flowfabric.engine.operators import (
    cancel_execution,
    change_priority,
    override_complete,
    override_delay,
    override_fail,
    replay_execution,
    replay_flow,
    resume_execution,
    revoke_lease,
    set_execution_tag,
    wake_execution,
)
from flowfabric.errors import EngineError, FlowCancelPending, NotFound
from flowfabric.ids import ExecutionId
from flowfabric.joins import JoinPolicy
from flowfabric.remote.row import if_match_of, remote
from flowfabric.remote.transport import Request, Transport
from flowfabric.states import CancellationPolicy, DerivedFlowState, PublicState

_X: Final = "/v1/executions/{execution_id}"
_F: Final = "/v1/flows/{flow_id}"
MAX_BATCH: Final = 1000
MAX_WAIT: Final = 30.0
_READ: Final = Wanted("out", packed=True, read=True)
_GIVEN: Final = Wanted("in", packed=True)
_NEW: Final = form(NewExecution, _GIVEN)
_CREATIONS: Final = form(list[Creation], _READ)
_OUTCOMES: Final = form(list[ExecutionOutcome], _READ)
_SNAPSHOT: Final = form(ExecutionSnapshot, _READ)
_FOUND: Final = form(list[FoundExecution], _READ)
_EDGE: Final = form(NewEdge, _GIVEN)
_POLICIES: Final = form(Mapping[ExecutionId, JoinPolicy], _GIVEN)
_SUBMITTED: Final = form(FlowSubmitted | FlowCancelAccepted, _READ)
_FLOW_CANCELLED: Final = form(FlowCancelAccepted | FlowAlreadyCancelled, _READ)


class _CreationsAnswer(msgspec.Struct, frozen=True):
    results: _CREATIONS.wire  # type: ignore[valid-type]
    all_created: bool = False


class _OutcomesAnswer(msgspec.Struct, frozen=True):
    outcomes: _OUTCOMES.wire  # type: ignore[valid-type]


class _DescribedAnswer(msgspec.Struct, frozen=True):
    execution: _SNAPSHOT.wire  # type: ignore[valid-type]


class _FoundAnswer(msgspec.Struct, frozen=True):
    items: _FOUND.wire  # type: ignore[valid-type]
    next_cursor: str | None


class _FlowOutcome(msgspec.Struct, frozen=True):
    flow_id: UUID
    outcome: DerivedFlowState | None


class _FlowOutcomes(msgspec.Struct, frozen=True):
    items: list[_FlowOutcome]


_CREATIONS_ANSWER: Final = msgspec.msgpack.Decoder(_CreationsAnswer)
_OUTCOMES_ANSWER: Final = msgspec.msgpack.Decoder(_OutcomesAnswer)


def new_execution(new: NewExecution) -> dict[str, Any]:
    """The members of an execution to create."""
    return {name: each for name, each in _NEW.dumped(new).items() if each is not None}


_SHAPE: Final = attrgetter(
    *(
        name
        for name in NewExecution.__struct_fields__
        if name not in ("execution_id", "input_payload")
    )
)
"""All of an execution but id and payload."""


def _batch(executions: Sequence[NewExecution]) -> dict[str, Any]:
    """The members of a batch. If all are alike, as usual, what they share is said once."""
    if type(executions) is AlikeBatch:
        payloads = executions.payloads
    else:
        shape = _SHAPE(executions[0])
        if any(_SHAPE(each) != shape for each in executions):
            return {"executions": [new_execution(each) for each in executions]}
        payloads = [each.input_payload for each in executions]
    alike = {"ids_base64": pack_ids(ids_of(executions)[1:]), "inputs_base64": payloads[1:]}
    return {"executions": [new_execution(executions[0])], "alike": alike}


class ExecutionOperations:
    """The operations on executions and flows."""

    transport: Transport
    partitions: int

    # Submitting.

    async def create_execution(
        self, executions: Sequence[NewExecution], *, fresh: bool = False
    ) -> list[Creation]:
        """As `Engine.create_execution`; more than 1,000 are several requests."""
        found: list[Creation] = []
        for at in range(0, len(executions), MAX_BATCH):
            found += await self._create(executions[at : at + MAX_BATCH], fresh=fresh, apart=True)
        return found

    async def create_all_or_none(
        self, executions: Sequence[NewExecution], *, fresh: bool = False
    ) -> list[Creation]:
        """Create up to 1,000 executions, or none; raises the `IdempotencyConflict` of one."""
        return await self._create(executions, fresh=fresh, apart=False)

    async def _create(
        self, executions: Sequence[NewExecution], *, fresh: bool, apart: bool
    ) -> list[Creation]:
        body = {**_batch(executions), "fresh": fresh, "apart": apart, "brief": True}
        _, data = await self.transport.call(
            Request(method="POST", path="/v1/executions/batch", body=body)
        )
        answer: Any = _CREATIONS_ANSWER.decode(data)
        if answer.all_created:
            waiting = PublicState.WAITING
            return [Created(execution_id=each, public_state=waiting) for each in ids_of(executions)]
        return _CREATIONS.loaded(answer.results)

    create_unique_executions = remote(
        create_unique_execution.create_unique_executions,
        "POST /v1/executions/unique",
        answer="results",
    )
    debounce_execution = remote(
        debounce_execution.debounce_execution, "POST /v1/executions/debounced"
    )
    locate_execution_by_key = remote(
        locate_execution_by_key.locate_execution_by_key,
        "GET /v1/executions/by-key",
        answer="execution_id",
        optional=True,
    )

    async def submit_flows(self, flows: Sequence[NewFlow]) -> list[FlowSubmitted | EngineError]:
        """As `Engine.submit_flows`, each flow in a transaction of its own."""
        found = await asyncio.gather(*map(self._submit_flow, flows), return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException) and not isinstance(each, EngineError):
                raise each
        return [each for each in found if isinstance(each, FlowSubmitted | EngineError)]

    async def _submit_flow(self, flow: NewFlow) -> FlowSubmitted:
        if not flow.members:  # to the server that would be another call
            flow.check(partitions=self.partitions)
        body = {
            "flow_kind": flow.flow_kind,
            "flow_id": flow.flow_id,
            "namespace": flow.namespace,
            "members": [new_execution(each) for each in flow.members],
            "edges": [_EDGE.dumped(each) for each in flow.edges],
            "policies": _POLICIES.dumped(flow.policies),
            "tags": dict(flow.tags),
            "idempotency_key": flow.idempotency_key,
            "on_conflict": flow.on_conflict,
        }
        _, data = await self.transport.call(Request(method="POST", path="/v1/flows", body=body))
        found: Any = _SUBMITTED.loaded(msgspec.msgpack.decode(data, type=_SUBMITTED.wire))
        return found

    # Outcomes.

    async def read_outcomes(
        self, executions: Sequence[ExecutionId], *, wait: float = 0.0
    ) -> dict[ExecutionId, ExecutionOutcome]:
        """As `Engine.read_outcomes`; with `wait`, of up to 1,000, as soon as one has ended."""
        found: dict[ExecutionId, ExecutionOutcome] = {}
        for at in range(0, len(executions), MAX_BATCH):
            body = {
                "execution_ids": [str(each) for each in executions[at : at + MAX_BATCH]],
                "wait": wait,
            }
            _, data = await self.transport.call(
                Request(method="POST", path="/v1/outcomes", body=body, wait=wait, reads=True)
            )
            answer: Any = _OUTCOMES_ANSWER.decode(data)
            outcomes: list[ExecutionOutcome] = _OUTCOMES.loaded(answer.outcomes)
            found |= {each.execution_id: each for each in outcomes}
        return found

    async def read_flow_outcomes(
        self, flow_ids: Sequence[UUID], *, wait: float = 0.0
    ) -> dict[UUID, DerivedFlowState | None]:
        """As `Engine.read_flow_outcomes`; with `wait`, as soon as one has ended."""
        found: dict[UUID, DerivedFlowState | None] = {}
        for at in range(0, len(flow_ids), MAX_BATCH):
            body = {"flow_ids": list(flow_ids[at : at + MAX_BATCH]), "wait": wait}
            _, data = await self.transport.call(
                Request(method="POST", path="/v1/flows/outcomes", body=body, wait=wait, reads=True)
            )
            answer = msgspec.msgpack.decode(data, type=_FlowOutcomes)
            found |= {each.flow_id: each.outcome for each in answer.items}
        return found

    # Reads.

    async def describe_execution(
        self, execution_id: ExecutionId, *, with_body: bool = False
    ) -> ExecutionSnapshot | None:
        """As `Engine.describe_execution`."""
        path = _X.replace("{execution_id}", quote(str(execution_id), safe=""))
        query = [("include", "body")] if with_body else []
        try:
            _, data = await self.transport.call(
                Request(method="GET", path=path, query=query, reads=True)
            )
        except NotFound:
            return None
        answer: Any = msgspec.msgpack.decode(data, type=_DescribedAnswer)
        return _SNAPSHOT.loaded(answer.execution)

    read_execution_info = remote(
        execution_info.read_execution_info, f"GET {_X}/state", optional=True
    )

    async def read_execution_state(self, execution_id: ExecutionId) -> PublicState | None:
        """As `Engine.read_execution_state`."""
        found = await self.read_execution_info(execution_id)
        return None if found is None else found.public_state

    explain_execution = remote(explain_execution.explain_execution, f"GET {_X}/explanation")
    list_attempts = remote(list_attempts.list_attempts, f"GET {_X}/attempts", answer="items")
    read_history = remote(read_history.read_history, f"GET {_X}/history", page="entries")
    list_steps = remote(
        list_steps.list_steps,
        f"GET {_X}/journal",
        page="steps",
        names={"after_seq": "cursor"},
    )
    read_compensation = remote(
        read_compensation.read_compensation, f"GET {_X}/compensation", answer="compensation"
    )
    read_upstream_results = remote(
        read_upstream_results.read_upstream_results, f"GET {_X}/upstream-results", answer="items"
    )

    async def search_executions(
        self, search: Search, *, cursor: str | None = None, limit: int = 50
    ) -> SearchPage:
        """As `Engine.search_executions`."""
        within = search.created_within
        if isinstance(within, timedelta):
            within = within.total_seconds()
        given = {
            "namespace": search.namespace,
            "lane": search.lane_id,
            "kind": search.execution_kind,
            "state": search.public_state,
            "tag": None if search.tag is None else "=".join(search.tag),
            "since": _instant(search.created_since),
            "before": _instant(search.created_before),
            "within": within,
            "divergent": "true" if search.divergent else None,
            "patch_missing": search.patch_missing,
            "cursor": cursor,
            "limit": limit,
        }
        query = [(name, str(each)) for name, each in given.items() if each is not None]
        _, data = await self.transport.call(
            Request(method="GET", path="/v1/executions", query=query, reads=True)
        )
        answer: Any = msgspec.msgpack.decode(data, type=_FoundAnswer)
        return SearchPage(executions=_FOUND.loaded(answer.items), next_cursor=answer.next_cursor)

    # Controls.

    cancel_execution = remote(
        cancel_execution.cancel_execution,
        f"POST {_X}/cancel",
        names={"source": "", "lease_epoch": "", "lease_id": "", "attempt_id": ""},
    )
    replay_execution = remote(
        replay_execution.replay_execution, f"POST {_X}/replay", names={"from_": "from"}
    )
    revoke_lease = remote(revoke_lease.revoke_lease, f"POST {_X}/revoke-lease")
    resume_execution = remote(
        resume_execution.resume_execution, f"POST {_X}/resume", names={"trigger_type": ""}
    )
    wake_execution = remote(wake_execution.wake_execution, f"POST {_X}/wake")
    override_complete = remote(
        override_complete.override_complete,
        f"POST {_X}/complete",
        names={"result": "result_base64"},
    )
    override_fail = remote(override_fail.override_fail, f"POST {_X}/fail")
    override_delay = remote(override_delay.override_delay, f"POST {_X}/delay")
    change_priority = remote(
        change_priority.change_priority,
        f"PUT {_X}/priority",
        names={"new_priority": "priority"},
    )
    set_execution_tag = remote(set_execution_tag.set_execution_tag, f"PUT {_X}/tags/" + "{key}")

    # Flows.

    describe_flow = remote(describe_flow.describe_flow, f"GET {_F}", optional=True)
    list_flow_members = remote(
        list_flow_members.list_flow_members, f"GET {_F}/members", page="members"
    )
    replay_flow = remote(replay_flow.replay_flow, f"POST {_F}/replay")

    async def cancel_flow(
        self,
        flow_id: UUID,
        *,
        reason: str = "",
        policy: CancellationPolicy | str = CancellationPolicy.CANCEL_ALL,
        grace: float | timedelta = 30.0,
        requester: str = "operator",
        wait: float | timedelta | None = MAX_WAIT,
        expected_last_mutation_at: datetime | None = None,
    ) -> FlowCancelAccepted | FlowAlreadyCancelled:
        """As `Engine.cancel_flow`; the answer waits for at most 30 seconds."""
        seconds = min(_seconds(wait or 0.0), MAX_WAIT)
        body = {"reason": reason, "policy": policy, "grace": _seconds(grace), "wait": seconds}
        path = _F.replace("{flow_id}", str(flow_id)) + "/cancel"
        status, data = await self.transport.call(
            Request(
                method="POST",
                path=path,
                body=body,
                if_match=(
                    None
                    if expected_last_mutation_at is None
                    else if_match_of(expected_last_mutation_at)
                ),
                wait=seconds,
            )
        )
        if status == 202:
            raise FlowCancelPending(flow_id, seconds, None)
        decoded = msgspec.msgpack.decode(data, type=_FLOW_CANCELLED.wire)
        return _FLOW_CANCELLED.loaded(decoded)


def _instant(given: datetime | None) -> str | None:
    return None if given is None else given.isoformat()


def _seconds(given: float | timedelta) -> float:
    return given.total_seconds() if isinstance(given, timedelta) else given
