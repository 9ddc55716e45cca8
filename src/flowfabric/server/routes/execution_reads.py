"""One execution: what it is, why it waits, what it did and how it ended."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from flowfabric.engine.events.read_history import HistoryEntry, OutboxName
from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
from flowfabric.engine.executions.explanation import Explanation
from flowfabric.engine.executions.list_attempts import Attempt
from flowfabric.engine.executions.read_execution_info import ExecutionInfo
from flowfabric.engine.executions.read_outcomes import ExecutionOutcome
from flowfabric.engine.joins.evaluate_flow_eligibility import FlowEligibility
from flowfabric.engine.joins.read_upstream_results import UpstreamResult
from flowfabric.engine.journal.list_steps import RecordedStep
from flowfabric.errors import NotFound, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.server.call import ApiCall, RawBytes, Reply
from flowfabric.server.etags import changed_version
from flowfabric.server.pages import PageQuery, check_limit, page, page_of
from flowfabric.server.problems import RequestProblem, invalid
from flowfabric.server.table import NOTHING, Kind, Route, route
from flowfabric.states import Scope

Included = Literal["attempts", "explanation", "outcome", "history", "body"]
X: Final = "/v1/executions/{execution_id}"


class IncludeQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What else is told of the execution."""

    include: list[Included] = []


class WaitQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many seconds the answer may take, 0 to 30."""

    wait: float = 0.0


class HistoryQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of events; of some families, or of all."""

    family: list[OutboxName] = msgspec.field(default_factory=list[OutboxName])
    newest_first: bool = False


class JournalQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of durable calls; their values on demand."""

    values: bool = False


class DescribedExecution(msgspec.Struct, frozen=True, kw_only=True):
    """An execution, with what was asked for beside it."""

    execution: ExecutionSnapshot
    attempts: list[Attempt] | None = None
    explanation: Explanation | None = None
    outcome: ExecutionOutcome | None = None
    history: list[HistoryEntry] | None = None


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """The attempts of an execution, in their order."""

    items: list[Attempt]


class UpstreamResults(msgspec.Struct, frozen=True, kw_only=True):
    """The results of the executions that this one depends on."""

    items: list[UpstreamResult]


class Eligibility(msgspec.Struct, frozen=True, kw_only=True):
    """May the execution run, as far as its joins are concerned?"""

    execution_id: ExecutionId
    eligibility: FlowEligibility


class Compensation(msgspec.Struct, frozen=True, kw_only=True):
    """The execution that undoes what another one did."""

    compensation: ExecutionId | None


def version(found: ExecutionSnapshot) -> str:
    """Changes whenever the execution does."""
    epoch = 0 if found.current_lease is None else found.current_lease.lease_epoch
    return changed_version(found.last_mutation_at, f"{epoch:x}")


async def describe(call: ApiCall, *, with_body: bool = False) -> ExecutionSnapshot:
    """The execution of the path, if the caller may see it; else raises `NotFound`."""
    execution_id = call.named()
    found = await call.engine.describe_execution(
        execution_id, with_body=with_body, namespaces=call.namespaces
    )
    if found is None:
        raise NotFound("execution", execution_id)
    return found


async def describe_execution(call: ApiCall, query: IncludeQuery) -> Reply:
    """What the execution is and where it stands; `include` adds attempts, explanation and more."""
    asked, engine = set(query.include), call.engine
    if "body" in asked:
        check_payloads(call)
    found = await describe(call, with_body="body" in asked)
    execution_id = found.execution_id
    more: dict[str, Any] = {}
    if "attempts" in asked:
        more["attempts"] = await engine.list_attempts(execution_id)
    if "explanation" in asked:
        more["explanation"] = await engine.explain_execution(
            execution_id, namespaces=call.namespaces
        )
    if "outcome" in asked:
        outcomes = await engine.read_outcomes([execution_id])
        outcome = outcomes.get(execution_id)
        more["outcome"] = None if outcome is None else call.without_result(outcome)
    if "history" in asked:
        more["history"] = (await engine.read_history(execution_id)).entries
    return Reply(value=DescribedExecution(execution=found, **more), version=version(found))


def check_payloads(call: ApiCall) -> None:
    """Raise a `RequestProblem` for a token that must not see payloads."""
    if call.principal.hide_payloads:
        raise RequestProblem("forbidden", "the token does not show payloads")


async def read_execution_info(call: ApiCall) -> ExecutionInfo:
    """The whole state vector."""
    execution_id = call.named()
    found = await call.engine.read_execution_info(execution_id, namespaces=call.namespaces)
    if found is None:
        raise NotFound("execution", execution_id)
    return found


async def explain_execution(call: ApiCall) -> Explanation:
    """Why the execution does not run, and what helps."""
    return await call.engine.explain_execution(call.named(), namespaces=call.namespaces)


async def list_attempts(call: ApiCall) -> Attempts:
    """The attempts of the execution."""
    return Attempts(items=await call.engine.list_attempts((await describe(call)).execution_id))


async def read_history(call: ApiCall, query: HistoryQuery) -> Reply:
    """What happened to the execution, in order."""
    found = await call.engine.read_history(
        await call.execution_id(),
        cursor=query.cursor,
        limit=check_limit(query.limit),
        families=query.family,
        newest_first=query.newest_first,
    )
    return page(call, HistoryEntry, found.entries, found.next_cursor, query)


async def read_execution_context(call: ApiCall) -> RawBytes:
    """The input of the execution, as it was given."""
    check_payloads(call)
    execution_id = call.named()
    try:
        found = await call.engine.read_execution_context(execution_id, namespaces=call.namespaces)
    except ValidationError:
        raise NotFound("execution", execution_id) from None
    return RawBytes(data=found.input_payload, encoding=found.payload_encoding)


async def get_execution_result(call: ApiCall) -> RawBytes:
    """The result of the execution, as its handler gave it."""
    check_payloads(call)
    execution_id = (await describe(call)).execution_id
    outcome = (await call.engine.read_outcomes([execution_id])).get(execution_id)
    if outcome is None or outcome.result is None:
        raise RequestProblem("no_result", f"execution {execution_id} has no result")
    return RawBytes(data=outcome.result, encoding=outcome.result_encoding)


async def read_outcome(call: ApiCall, query: WaitQuery) -> Reply:
    """How the execution ended; 202 if it has not ended within `wait` seconds."""
    seconds = call.seconds(query.wait)
    execution_id = (await describe(call)).execution_id
    found = await call.services.first_outcomes([execution_id], seconds)
    if not found:
        return Reply(status=202)
    return Reply(value=call.without_result(found[0]))


async def read_upstream_results(call: ApiCall) -> UpstreamResults:
    """The results that the execution depends on."""
    check_payloads(call)
    found = await call.engine.read_upstream_results((await describe(call)).execution_id)
    return UpstreamResults(items=found)


async def evaluate_flow_eligibility(call: ApiCall) -> Eligibility:
    """May the execution run, as far as its joins are concerned?"""
    execution_id = (await describe(call)).execution_id
    found = await call.engine.evaluate_flow_eligibility(execution_id)
    return Eligibility(execution_id=execution_id, eligibility=found)


async def list_steps(call: ApiCall, query: JournalQuery) -> Reply:
    """The durable calls of the handler, in the order in which they were recorded."""
    if query.values:
        check_payloads(call)
    after = None
    if query.cursor is not None:
        try:
            after = int(query.cursor)
        except ValueError:
            raise invalid("cursor", "is not a cursor of this list") from None
        if abs(after) >= 2**31:
            raise invalid("cursor", "is not a cursor of this list")
    found = await call.engine.list_steps(
        (await describe(call)).execution_id,
        after_seq=after,
        limit=check_limit(query.limit),
        values=query.values,
    )
    return page(call, RecordedStep, found.steps, found.next_after_seq, query)


async def read_compensation(call: ApiCall) -> Compensation:
    """The execution that undoes what this one did, if there is one."""
    found = await call.engine.read_compensation((await describe(call)).execution_id)
    return Compensation(compensation=found)


def _read(path: str, handler: Any, answers: Any, **more: Any) -> Route:
    return route("GET", X + path, handler, scope=Scope.READ, answers={200: answers}, **more)


ROUTES: Final[tuple[Route, ...]] = (
    _read("", describe_execution, DescribedExecution, query=IncludeQuery, etag=True),
    _read("/state", read_execution_info, ExecutionInfo),
    _read("/explanation", explain_execution, Explanation),
    _read("/attempts", list_attempts, Attempts),
    _read("/history", read_history, page_of(HistoryEntry), query=HistoryQuery),
    _read("/input", read_execution_context, bytes, kind=Kind.RAW),
    _read("/result", get_execution_result, bytes, kind=Kind.RAW),
    route(
        "GET",
        X + "/outcome",
        read_outcome,
        scope=Scope.READ,
        query=WaitQuery,
        answers={200: ExecutionOutcome, 202: NOTHING},
        waits=True,
    ),
    _read("/compensation", read_compensation, Compensation),
    _read("/upstream-results", read_upstream_results, UpstreamResults),
    _read("/eligibility", evaluate_flow_eligibility, Eligibility),
    _read("/journal", list_steps, page_of(RecordedStep), query=JournalQuery),
)
