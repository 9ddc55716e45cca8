"""Work of durable handlers: their journal, frames, suspensions, waitpoints and signals."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from flowfabric.conditions.condition import Signal
from flowfabric.engine.executions.count_expiring_leases import ExpiringLeases
from flowfabric.engine.executions.look_at_waits import WaitsSeen
from flowfabric.engine.journal.compensation import CompensationCall
from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.engine.journal.read_journal import Journal
from flowfabric.engine.journal.restart_execution import RestartedExecution
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.streams.append_frame import Append, Appended
from flowfabric.engine.suspensions.close_waitpoint import ClosedWaitpoint
from flowfabric.engine.suspensions.read_inbox import Inbox
from flowfabric.engine.suspensions.suspend import SuspendRequest
from flowfabric.engine.suspensions.suspension import (
    NothingToSuspendFor,
    SatisfiedAlready,
    Suspended,
)
from flowfabric.engine.suspensions.waitpoint import Waitpoint
from flowfabric.errors import EngineError, NotFound, Refusal
from flowfabric.ids import ExecutionId
from flowfabric.server.call import ApiCall
from flowfabric.server.routes.work import many
from flowfabric.server.table import BATCH, CONTROL, NOTHING, Route, route
from flowfabric.states import Scope
from flowfabric.states.waits import PROACTIVE_CLOSE


class JournalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of the journals of many attempts."""

    entries: list[EntryWrite]


class LeaseRefused(msgspec.Struct, frozen=True, kw_only=True):
    """The entries of this lease were refused."""

    lease: Lease
    refusal: Refusal


class JournalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The leases whose entries were refused; those of the others are recorded."""

    refused: list[LeaseRefused]


class FramesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Frames of the streams of many attempts."""

    appends: list[Append]


class FramesAppended(msgspec.Struct, frozen=True, kw_only=True):
    """The frames of one attempt, in their order."""

    frames: list[Appended]


class FramesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answers in the order of the request."""

    results: list[FramesAppended | EngineError]


class SuspendRequests(msgspec.Struct, frozen=True, kw_only=True):
    """Executions that wait for something outside of their handlers."""

    requests: list[SuspendRequest]


class SuspendAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers in the order of the request."""

    results: list[Suspended | SatisfiedAlready | NothingToSuspendFor | EngineError]


class WaitpointRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A waitpoint to which outsiders deliver signals."""

    lease: Lease
    waitpoint_key: str
    expires_in: float
    waitpoint_id: UUID | None = None
    entry: EntryWrite | None = None
    """Recorded in the journal with the waitpoint, or not at all."""
    answer_schema: dict[str, Any] | None = None


class WaitpointsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Waitpoints of one execution that the worker holds."""

    execution_id: ExecutionId
    waitpoint_ids: list[UUID]


class Waitpoints(msgspec.Struct, frozen=True, kw_only=True):
    """Those of the waitpoints that exist."""

    waitpoints: list[Waitpoint]


class CloseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Waitpoints that are no longer needed."""

    execution_id: ExecutionId
    waitpoint_ids: list[UUID]
    reason: str = PROACTIVE_CLOSE
    by_handler: bool = False


class ClosedWaitpoints(msgspec.Struct, frozen=True, kw_only=True):
    """The answers in the order of the request."""

    results: list[ClosedWaitpoint | NotFound]


class HeldLeaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One execution that the worker holds."""

    lease: Lease


class LeaseHeld(msgspec.Struct, frozen=True, kw_only=True):
    """The lease as it is."""

    lease: Lease


class ExecutionsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Executions that the worker runs."""

    execution_ids: list[ExecutionId]


class ExecutionJournal(msgspec.Struct, frozen=True, kw_only=True):
    """The journal of one execution."""

    execution_id: ExecutionId
    journal: Journal


class Journals(msgspec.Struct, frozen=True, kw_only=True):
    """The journals of those that have one."""

    items: list[ExecutionJournal]


class ExecutionInbox(msgspec.Struct, frozen=True, kw_only=True):
    """The signals of one execution that its handler has not consumed."""

    execution_id: ExecutionId
    inbox: Inbox


class Inboxes(msgspec.Struct, frozen=True, kw_only=True):
    """The inboxes of those that have one."""

    items: list[ExecutionInbox]


class ExecutionWaits(msgspec.Struct, frozen=True, kw_only=True):
    """How far the waits of one execution are."""

    execution_id: ExecutionId
    waits: WaitsSeen


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """The waits of those that exist."""

    items: list[ExecutionWaits]


class ObservedSignals(msgspec.Struct, frozen=True, kw_only=True):
    """ObservedSignals, in the order of their arrival."""

    signals: list[Signal]


class RestartRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The execution begins anew with another input."""

    lease: Lease
    input_payload: bytes = b""
    payload_encoding: str | None = None


class CompensationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What undoes a step if the execution does not succeed."""

    entry: EntryWrite
    call: CompensationCall


class DisarmRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The step from which nothing is undone any more."""

    entry: EntryWrite


class CountRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker can run."""

    worker_id: str
    worker_instance_id: str
    lanes: tuple[str, ...]
    kinds: tuple[str, ...] | None = None
    capabilities: tuple[str, ...] = ()
    namespace: str | None = None
    at_most: int = 10_000
    within: float | None = None
    until: datetime | None = None


class Claimable(msgspec.Struct, frozen=True, kw_only=True):
    """How many executions the worker could claim, and what leases end soon."""

    claimable: int
    expiring: ExpiringLeases | None = None


async def record_entries(call: ApiCall, body: JournalRequest) -> JournalAnswer:
    """Record durable calls of handlers."""
    many("entries", body.entries)
    refused = await call.engine.record_entries(body.entries)
    return JournalAnswer(
        refused=[LeaseRefused(lease=lease, refusal=why) for lease, why in refused.items()]
    )


async def read_journal(call: ApiCall, body: ExecutionsRequest) -> Journals:
    """The journals of executions that the worker runs."""
    many("execution_ids", body.execution_ids)
    await call.check_executions(body.execution_ids)
    found = await call.engine.read_journal(body.execution_ids)
    return Journals(
        items=[ExecutionJournal(execution_id=each, journal=one) for each, one in found.items()]
    )


async def wait_for_entries(call: ApiCall, body: HeldLeaseRequest) -> LeaseHeld:
    """The entries of an earlier lease are all visible now; answers the lease as it is."""
    found = await call.engine.wait_for_entries(body.lease)
    if isinstance(found, EngineError):
        raise found
    return LeaseHeld(lease=found)


async def restart_execution(call: ApiCall, body: RestartRequest) -> RestartedExecution:
    """Let the execution begin anew with another input."""
    found = await call.engine.restart_execution(
        body.lease, payload=body.input_payload, payload_encoding=body.payload_encoding
    )
    if isinstance(found, EngineError):
        raise found
    return found


async def arm_compensation(call: ApiCall, body: CompensationRequest) -> None:
    """Arm what undoes a step if the execution does not succeed."""
    refused = await call.engine.arm_compensation(body.entry, body.call)
    if isinstance(refused, EngineError):
        raise refused


async def disarm_compensations(call: ApiCall, body: DisarmRequest) -> None:
    """Disarm what would undo steps."""
    refused = await call.engine.disarm_compensations(body.entry)
    if isinstance(refused, EngineError):
        raise refused


async def append_frames(call: ApiCall, body: FramesRequest) -> FramesAnswer:
    """Append frames to streams."""
    many("appends", body.appends)
    found = await call.engine.append_frames(body.appends)
    results = [x if isinstance(x, EngineError) else FramesAppended(frames=x) for x in found]
    return FramesAnswer(results=results)


async def suspend(call: ApiCall, body: SuspendRequests) -> SuspendAnswers:
    """Suspend executions until their conditions hold."""
    many("requests", body.requests)
    results = await call.engine.suspend(body.requests)
    await call.engine.unblock_keys_of([each.lease.execution_id for each in body.requests])
    return SuspendAnswers(results=results)


async def create_waitpoint(call: ApiCall, body: WaitpointRequest) -> Waitpoint:
    """Make a waitpoint; its token is for the outsider that delivers the signal."""
    return await call.engine.create_waitpoint(
        body.lease,
        body.waitpoint_key,
        expires_in=body.expires_in,
        waitpoint_id=body.waitpoint_id,
        entry=body.entry,
        answer_schema=body.answer_schema,
    )


async def read_waitpoints(call: ApiCall, body: WaitpointsRequest) -> Waitpoints:
    """Waitpoints of an execution that the worker holds, with their tokens and signals."""
    await call.check_executions([body.execution_id])
    found = await call.engine.read_waitpoints(body.execution_id, body.waitpoint_ids)
    return Waitpoints(waitpoints=list(found.values()))


async def close_waitpoints(call: ApiCall, body: CloseRequest) -> ClosedWaitpoints:
    """Close waitpoints that are no longer needed."""
    many("waitpoint_ids", body.waitpoint_ids)
    await call.check_executions([body.execution_id])
    found = await call.engine.close_waitpoints(
        body.execution_id,
        body.waitpoint_ids,
        reason=body.reason,
        actor=call.actor,
        by_handler=body.by_handler,
    )
    return ClosedWaitpoints(results=found)


async def observe_signals(call: ApiCall, body: HeldLeaseRequest) -> ObservedSignals:
    """The signals that resumed the execution."""
    return ObservedSignals(signals=await call.engine.observe_signals(body.lease))


async def read_inbox(call: ApiCall, body: ExecutionsRequest) -> Inboxes:
    """The signals that handlers have not consumed."""
    many("execution_ids", body.execution_ids)
    await call.check_executions(body.execution_ids)
    found = await call.engine.read_inbox(body.execution_ids)
    return Inboxes(
        items=[ExecutionInbox(execution_id=each, inbox=one) for each, one in found.items()]
    )


async def look_at_waits(call: ApiCall, body: ExecutionsRequest) -> Waits:
    """How far the waits of executions are."""
    many("execution_ids", body.execution_ids)
    await call.check_executions(body.execution_ids)
    found = await call.engine.look_at_waits(body.execution_ids)
    return Waits(
        items=[ExecutionWaits(execution_id=each, waits=one) for each, one in found.items()]
    )


async def count_claimable(call: ApiCall, body: CountRequest) -> Claimable:
    """How much the worker could claim; with `within`, also the leases that end so soon."""
    claimant = Claimant(
        worker_id=body.worker_id,
        worker_instance_id=body.worker_instance_id,
        lanes=body.lanes,
        kinds=body.kinds,
        capabilities=body.capabilities,
        namespace=call.namespace(body.namespace),
    )
    expiring = None
    if body.within is not None:
        expiring = await call.engine.count_expiring_leases(
            claimant, within=body.within, until=body.until
        )
    claimable = await call.engine.count_claimable(claimant, at_most=body.at_most)
    return Claimable(claimable=claimable, expiring=expiring)


def _work(path: str, handler: Any, body: Any, answer: Any, **more: Any) -> Route:
    answers = {204: NOTHING} if answer is NOTHING else {200: answer}
    settings: dict[str, Any] = {"limit": BATCH, "answers": answers, **more}
    return route("POST", f"/v1/work/{path}", handler, scope=Scope.WORK, body=body, **settings)


ROUTES: Final[tuple[Route, ...]] = (
    _work("journal", record_entries, JournalRequest, JournalAnswer),
    _work("read-journal", read_journal, ExecutionsRequest, Journals),
    _work("wait-for-entries", wait_for_entries, HeldLeaseRequest, LeaseHeld, limit=CONTROL),
    _work("restart", restart_execution, RestartRequest, RestartedExecution),
    _work("arm-compensation", arm_compensation, CompensationRequest, NOTHING),
    _work("disarm-compensations", disarm_compensations, DisarmRequest, NOTHING),
    _work("frames", append_frames, FramesRequest, FramesAnswer),
    _work("suspend", suspend, SuspendRequests, SuspendAnswers),
    _work("waitpoints", create_waitpoint, WaitpointRequest, Waitpoint, limit=CONTROL),
    _work("read-waitpoints", read_waitpoints, WaitpointsRequest, Waitpoints, limit=CONTROL),
    _work("close-waitpoints", close_waitpoints, CloseRequest, ClosedWaitpoints, limit=CONTROL),
    _work("signals", observe_signals, HeldLeaseRequest, ObservedSignals, limit=CONTROL),
    _work("read-inbox", read_inbox, ExecutionsRequest, Inboxes),
    _work("read-wait", look_at_waits, ExecutionsRequest, Waits),
    _work("count", count_claimable, CountRequest, Claimable, limit=CONTROL),
)
