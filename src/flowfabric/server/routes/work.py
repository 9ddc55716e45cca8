"""Work: what a worker that lives on HTTP alone claims, renews and ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from flowfabric.engine.joins.read_join import Join
from flowfabric.engine.joins.read_window import ChildWindow
from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.engine.lifecycle.complete import Completed, Completion
from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.engine.lifecycle.delay import Delayed, DelayRequest
from flowfabric.engine.lifecycle.fail import Failure, RetryScheduled, TerminalFailed
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.read_claimed import StillClaimed
from flowfabric.engine.lifecycle.release import Released
from flowfabric.engine.lifecycle.release_after_trouble import ReleasedAfterTrouble, Trouble
from flowfabric.engine.lifecycle.sql.lease import Claimed
from flowfabric.engine.lifecycle.wait_children import ChildWait, NothingToWaitFor, WaitingChildren
from flowfabric.errors import EngineError, Refusal
from flowfabric.ids import ExecutionId, GroupId
from flowfabric.joins import JoinPolicy
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.problems import invalid
from flowfabric.server.table import BATCH, CONTROL, NOTHING, Route, route
from flowfabric.states import Scope

MAX_BATCH: Final = 1000


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker can run, how much of it, and for how many seconds it may wait for it."""

    worker_id: str
    worker_instance_id: str
    lanes: tuple[str, ...] = ("default",)
    kinds: tuple[str, ...] | None = None
    capabilities: tuple[str, ...] = ()
    namespace: str | None = None
    limit: int = 1
    ttl: float = 30.0
    wait: float = 0.0
    lease_id: UUID | None = None


class ClaimAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was leased to the worker; `lease` goes into every call about an execution."""

    executions: list[Claimed]


class StillClaimedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The leases of claims whose answer was lost."""

    lease_ids: list[UUID]
    worker_instance_id: str


class StillClaimedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What those claims had leased."""

    executions: list[StillClaimed]


class RenewRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Leases to keep for another `ttl` seconds."""

    leases: list[Lease]
    ttl: float = 30.0
    record: bool = False


class LeasesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Leases to hand back."""

    leases: list[Lease]


class CompletionsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Executions that have succeeded, with their results."""

    completions: list[Completion]


class FailuresRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts that have failed."""

    failures: list[Failure]


class DelayRequests(msgspec.Struct, frozen=True, kw_only=True):
    """Executions that go on later."""

    requests: list[DelayRequest]


class TroubleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Executions that the worker could not run."""

    troubles: list[Trouble]


class WaitChildrenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Executions that wait for their children."""

    waits: list[ChildWait]


class ProgressRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How far the handler is."""

    lease: Lease
    percent: int | None = None
    message: str | None = None


class SpawnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Children of the execution of the lease, which one join waits for."""

    lease: Lease
    children: list[NewExecution]
    group: GroupId | None = None
    policy: JoinPolicy | None = None
    entry: EntryWrite | None = None


class SpawnApartRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Children of the execution of the lease, each with a join of its own."""

    lease: Lease
    children: Mapping[GroupId, NewExecution]
    entry: EntryWrite | None = None


class WindowRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The joins of some children."""

    lease: Lease
    groups: Mapping[GroupId, ExecutionId]


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The join that a handler waits for."""

    group: GroupId


class Renewals(msgspec.Struct, frozen=True, kw_only=True):
    """The answers in the order of the request."""

    results: list[Refusal | None]


class Completions(msgspec.Struct, frozen=True, kw_only=True):
    """The answers in the order of the request."""

    results: list[Completed | Refusal]


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """The answers in the order of the request."""

    results: list[RetryScheduled | TerminalFailed | Refusal]


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """The answers in the order of the request."""

    results: list[Delayed | Refusal]


class Releases(msgspec.Struct, frozen=True, kw_only=True):
    """The answers in the order of the request."""

    results: list[Released | Refusal]


class TroubleReleases(msgspec.Struct, frozen=True, kw_only=True):
    """The answers in the order of the request."""

    results: list[ReleasedAfterTrouble | TerminalFailed | Refusal]


class ChildWaits(msgspec.Struct, frozen=True, kw_only=True):
    """The answers in the order of the request."""

    results: list[WaitingChildren | NothingToWaitFor | Refusal]


class Spawned(msgspec.Struct, frozen=True, kw_only=True):
    """The join of the children, if they have one."""

    join: Join | None


def many(field: str, given: Sequence[Any]) -> None:
    """Raise a `RequestProblem` unless there are 1 to 1,000."""
    if not 1 <= len(given) <= MAX_BATCH:
        raise invalid(field, f"must be 1 to {MAX_BATCH}")


async def claim(call: ApiCall, body: ClaimRequest) -> Reply:
    """Lease executions to the worker; 204 if there are none within `wait` seconds.

    A claim whose client has left hands back what it got.
    """
    claimant = Claimant(
        worker_id=body.worker_id,
        worker_instance_id=body.worker_instance_id,
        lanes=body.lanes,
        kinds=body.kinds,
        capabilities=body.capabilities,
        namespace=call.namespace(body.namespace),
    )
    until = time.monotonic() + call.seconds(body.wait)
    found = await _claim_once(call, claimant, body)
    if found or body.wait <= 0:
        return _claimed(found)
    draining = call.services.draining
    async with call.services.waiter([f"lane:{lane}" for lane in claimant.lanes]) as waiter:
        while not found and not draining.is_set():
            left = until - time.monotonic()
            if left <= 0:
                break
            await call.services.pause(waiter, left)
            if not draining.is_set():
                found = await _claim_once(call, claimant, body)
    return _claimed(found)


def _claimed(found: list[Claimed]) -> Reply:
    return Reply(value=ClaimAnswer(executions=found)) if found else Reply(status=204)


async def _claim_once(call: ApiCall, claimant: Claimant, body: ClaimRequest) -> list[Claimed]:
    claiming = asyncio.ensure_future(
        call.engine.claim(claimant, ttl=body.ttl, limit=body.limit, lease_id=body.lease_id)
    )
    try:
        return await asyncio.shield(claiming)
    except asyncio.CancelledError:
        found = await claiming
        if found:
            await call.engine.release([each.lease for each in found])
        raise


async def read_claimed(call: ApiCall, body: StillClaimedRequest) -> StillClaimedAnswer:
    """What claims had leased whose answers were lost."""
    many("lease_ids", body.lease_ids)
    found = await call.engine.read_claimed(
        body.lease_ids, worker_instance_id=body.worker_instance_id
    )
    return StillClaimedAnswer(executions=found)


async def renew(call: ApiCall, body: RenewRequest) -> Renewals:
    """Keep leases."""
    many("leases", body.leases)
    return Renewals(results=await call.engine.renew(body.leases, ttl=body.ttl, record=body.record))


async def _let_next_go(call: ApiCall, leases: Sequence[Lease]) -> None:
    """Executions that waited for slots of limits which these leases held are claimable."""
    await call.engine.unblock_keys_of([each.execution_id for each in leases])


async def complete(call: ApiCall, body: CompletionsRequest) -> Completions:
    """Record results; flows then go on at once."""
    many("completions", body.completions)
    results = await call.engine.complete(body.completions)
    await call.engine.dispatch()
    await _let_next_go(call, [each.lease for each in body.completions])
    return Completions(results=results)


async def fail(call: ApiCall, body: FailuresRequest) -> Failures:
    """Record failures: each is retried as its policy says, or ends the execution."""
    many("failures", body.failures)
    results = await call.engine.fail(body.failures)
    if any(isinstance(each, TerminalFailed) for each in results):
        await call.engine.dispatch()
    await _let_next_go(call, [each.lease for each in body.failures])
    return Failures(results=results)


async def delay(call: ApiCall, body: DelayRequests) -> Delays:
    """Hand executions back until later."""
    many("requests", body.requests)
    results = await call.engine.delay(body.requests)
    await _let_next_go(call, [each.lease for each in body.requests])
    return Delays(results=results)


async def release(call: ApiCall, body: LeasesRequest) -> Releases:
    """Hand executions back at once."""
    many("leases", body.leases)
    results = await call.engine.release(body.leases)
    await _let_next_go(call, body.leases)
    return Releases(results=results)


async def release_after_trouble(call: ApiCall, body: TroubleRequest) -> TroubleReleases:
    """Hand executions back that the worker could not run."""
    many("troubles", body.troubles)
    results = await call.engine.release_after_trouble(body.troubles)
    if any(isinstance(each, TerminalFailed) for each in results):
        await call.engine.dispatch()
    await _let_next_go(call, [each.lease for each in body.troubles])
    return TroubleReleases(results=results)


async def wait_children(call: ApiCall, body: WaitChildrenRequest) -> ChildWaits:
    """Suspend executions until their joins are decided."""
    many("waits", body.waits)
    results = await call.engine.wait_children(body.waits)
    await _let_next_go(call, [each.lease for each in body.waits])
    return ChildWaits(results=results)


async def progress(call: ApiCall, body: ProgressRequest) -> None:
    """Say how far the handler is."""
    refused = await call.engine.progress(body.lease, percent=body.percent, message=body.message)
    if isinstance(refused, EngineError):
        raise refused


async def spawn_children(call: ApiCall, body: SpawnRequest) -> Spawned:
    """Create children of the execution that the worker holds."""
    many("children", body.children)
    _check_children(call, body.children)
    join = await call.engine.spawn_children(
        body.lease, body.children, group=body.group, policy=body.policy, entry=body.entry
    )
    return Spawned(join=join)


async def spawn_apart(call: ApiCall, body: SpawnApartRequest) -> None:
    """Create children of the execution that the worker holds, each with a join of its own."""
    many("children", list(body.children))
    _check_children(call, list(body.children.values()))
    await call.engine.spawn_apart(body.lease, body.children, entry=body.entry)


def _check_children(call: ApiCall, children: Sequence[NewExecution]) -> None:
    for each in children:
        call.namespace(each.namespace)


async def read_window(call: ApiCall, body: WindowRequest) -> ChildWindow:
    """Which of some children have ended."""
    return await call.engine.read_window(body.lease, body.groups)


async def read_join(call: ApiCall, body: JoinRequest) -> Join:
    """How far the join is that a handler waits for."""
    return await call.engine.read_join(body.group)


def _work(path: str, handler: Any, body: Any, answer: Any, **more: Any) -> Route:
    settings: dict[str, Any] = {"limit": BATCH, "answers": {200: answer}, **more}
    return route("POST", f"/v1/work/{path}", handler, scope=Scope.WORK, body=body, **settings)


ROUTES: Final[tuple[Route, ...]] = (
    _work(
        "claim",
        claim,
        ClaimRequest,
        ClaimAnswer,
        limit=CONTROL,
        answers={200: ClaimAnswer, 204: NOTHING},
        waits=True,
    ),
    _work("claimed", read_claimed, StillClaimedRequest, StillClaimedAnswer, limit=CONTROL),
    _work("renew", renew, RenewRequest, Renewals),
    _work("complete", complete, CompletionsRequest, Completions),
    _work("fail", fail, FailuresRequest, Failures),
    _work("delay", delay, DelayRequests, Delays),
    _work("release", release, LeasesRequest, Releases),
    _work("release-after-trouble", release_after_trouble, TroubleRequest, TroubleReleases),
    _work("wait-children", wait_children, WaitChildrenRequest, ChildWaits),
    _work("progress", progress, ProgressRequest, NOTHING, answers={204: NOTHING}),
    _work("spawn-children", spawn_children, SpawnRequest, Spawned),
    _work("spawn-apart", spawn_apart, SpawnApartRequest, NOTHING, answers={204: NOTHING}),
    _work("read-window", read_window, WindowRequest, ChildWindow),
    _work("read-join", read_join, JoinRequest, Join, limit=CONTROL),
)
