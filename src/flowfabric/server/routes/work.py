"""Work: what a worker that lives on HTTP alone claims, renews and ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec

from flowfabric.engine.joins.read_join import Join
from flowfabric.engine.joins.read_window import ChildWindow
from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.engine.lifecycle.complete import Completed, Completion
from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.engine.lifecycle.delay import Delayed, DelayRequest
from flowfabric.engine.lifecycle.fail import Failure, RetryScheduled, TerminalFailed
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.release import Released
from flowfabric.engine.lifecycle.release_after_trouble import ReleasedAfterTrouble, Trouble
from flowfabric.engine.lifecycle.wait_children import ChildWait, NothingToWaitFor, WaitingChildren
from flowfabric.errors import EngineError, Refusal
from flowfabric.ids import ExecutionId, GroupId
from flowfabric.joins import JoinPolicy
from flowfabric.reconcile.make_due_claimable import compensate
from flowfabric.server.call import ApiCall
from flowfabric.server.problems import invalid
from flowfabric.server.table import BATCH, CONTROL, NOTHING, Route, route
from flowfabric.states import Scope

MAX_BATCH: Final = 1000
_repeated: Final = attrgetter("repeated")


class RenewRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Leases to keep for another `ttl` seconds."""

    leases: list[Lease]
    ttl: float = 30.0
    record: bool = False


class LeasesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Leases to hand back."""

    leases: list[Lease]


class CompletionsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Executions that have succeeded, with their results.

    With `brief` the answer has no results if this call ended all of them.
    """

    completions: list[Completion]
    brief: bool = False


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
    """The answers in the order of the request.

    `all_completed` instead of results: this call ended all of them.
    """

    results: list[Completed | Refusal]
    all_completed: bool = False


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


async def renew(call: ApiCall, body: RenewRequest) -> Renewals:
    """Keep leases."""
    many("leases", body.leases)
    return Renewals(results=await call.engine.renew(body.leases, ttl=body.ttl, record=body.record))


async def _let_next_go(call: ApiCall, leases: Sequence[Lease]) -> None:
    """Executions that waited for slots of limits which these leases held are claimable."""
    if call.services.plain_claims.include(leases):
        return
    await call.engine.unblock_keys_of([each.execution_id for each in leases])


async def complete(call: ApiCall, body: CompletionsRequest) -> Completions:
    """Record results; flows then go on at once."""
    many("completions", body.completions)
    results = await call.engine.complete(body.completions)
    leases = [each.lease for each in body.completions]
    if not call.services.plain_claims.include(leases):
        await call.engine.dispatch()
        await _let_next_go(call, leases)
    all_completed = body.brief and set(map(type, results)) == {Completed}
    if all_completed and not any(map(_repeated, results)):
        return Completions(results=[], all_completed=True)
    return Completions(results=results)


async def fail(call: ApiCall, body: FailuresRequest) -> Failures:
    """Record failures: each is retried as its policy says, or ends the execution."""
    many("failures", body.failures)
    results = await call.engine.fail(body.failures)
    if any(isinstance(each, TerminalFailed) for each in results):
        await call.engine.dispatch()
        await compensate(call.engine.pool)
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
    call.services.plain_claims.forget(body.lease)
    join = await call.engine.spawn_children(
        body.lease, body.children, group=body.group, policy=body.policy, entry=body.entry
    )
    return Spawned(join=join)


async def spawn_apart(call: ApiCall, body: SpawnApartRequest) -> None:
    """Create children of the execution that the worker holds, each with a join of its own."""
    many("children", list(body.children))
    _check_children(call, list(body.children.values()))
    call.services.plain_claims.forget(body.lease)
    await call.engine.spawn_apart(body.lease, body.children, entry=body.entry)


def _check_children(call: ApiCall, children: Sequence[NewExecution]) -> None:
    for each in children:
        call.namespace(each.namespace)


async def read_window(call: ApiCall, body: WindowRequest) -> ChildWindow:
    """Which of some children have ended."""
    return await call.engine.read_window(body.lease, body.groups)


async def read_join(call: ApiCall, body: JoinRequest) -> Join:
    """How far the join is that a handler waits for."""
    return await call.engine.read_join(body.group, namespaces=call.namespaces)


def _work(path: str, handler: Any, body: Any, answer: Any, **more: Any) -> Route:
    settings: dict[str, Any] = {"limit": BATCH, "answers": {200: answer}, **more}
    return route("POST", f"/v1/work/{path}", handler, scope=Scope.WORK, body=body, **settings)


ROUTES: Final[tuple[Route, ...]] = (
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
