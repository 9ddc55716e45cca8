"""Budgets, which all namespaces share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flowfabric.engine import (
    BudgetAlreadySatisfied,
    BudgetCreated,
    BudgetLimitsChanged,
    BudgetReleased,
    BudgetReset,
    BudgetStatus,
    HardBreach,
    SoftBreach,
    UsageAlreadyApplied,
    UsageCounted,
)
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import EngineError
from flowfabric.ids import ExecutionId, new_uuid
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.etags import changed_version, seen_at
from flowfabric.server.pages import PageQuery, check_limit, page, page_of
from flowfabric.server.problems import RequestProblem
from flowfabric.server.routes.work import many
from flowfabric.server.table import BATCH, CONTROL, Route, route
from flowfabric.states import EnforcementMode, Scope

B: Final = "/v1/budgets/{budget_id}"
Counted = UsageCounted | UsageAlreadyApplied | SoftBreach | HardBreach


class BudgetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How much of each dimension may be used; 0, or none given, is no limit."""

    hard_limits: Mapping[str, int] = {}
    soft_limits: Mapping[str, int] = {}
    budget_id: str | None = None
    scope_type: str = "global"
    scope_id: str = ""
    enforcement_mode: EnforcementMode = EnforcementMode.STRICT
    on_hard_limit: str = "fail"
    on_soft_limit: str = "warn"
    reset_interval: float = 0.0
    reason: str | None = None


class BudgetChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What changes of a budget; what is absent stays."""

    hard_limits: Mapping[str, int] | None = None
    soft_limits: Mapping[str, int] | None = None
    enforcement_mode: EnforcementMode | None = None
    reset_interval: float | None = None
    reason: str | None = None


class UsageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an execution that the worker holds has used, or is about to use."""

    lease: Lease
    dimensions: Mapping[str, int]
    dedup_key: str | None = None


class HeldUsage(UsageRequest, frozen=True, kw_only=True):
    """What an execution has used of one budget."""

    budget_id: str


class UsageReports(msgspec.Struct, frozen=True, kw_only=True):
    """What executions that the worker holds have used; each is counted by itself."""

    reports: list[HeldUsage]


class UsageAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers in the order of the request."""

    results: list[UsageCounted | UsageAlreadyApplied | SoftBreach | HardBreach | EngineError]


class SpendRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an execution has used."""

    execution_id: ExecutionId
    deltas: Mapping[str, int]
    idempotency_key: str = ""


class AdminUsageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was used by nobody in particular."""

    dimensions: list[str]
    deltas: list[int]
    dedup_key: str | None = None
    reason: str | None = None


class ReleaseBudgetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Whose spend is given back."""

    execution_id: ExecutionId
    reason: str | None = None


class GiveBackRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Whose spend its handler gives back."""

    execution_id: ExecutionId


class ResetBudgetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The usage begins at zero."""

    reason: str | None = None


async def create_budget(call: ApiCall, body: BudgetRequest) -> Reply:
    """Create a budget; 200 if it was there before."""
    names = list({**body.hard_limits, **body.soft_limits})
    made = await call.engine.create_budget(
        body.budget_id or new_uuid(),
        dimensions=names,
        hard_limits=[body.hard_limits.get(name, 0) for name in names],
        soft_limits=[body.soft_limits.get(name, 0) for name in names],
        scope_type=body.scope_type,
        scope_id=body.scope_id or body.budget_id or "",
        enforcement_mode=body.enforcement_mode,
        on_hard_limit=body.on_hard_limit,
        on_soft_limit=body.on_soft_limit,
        reset_interval=body.reset_interval,
        actor=call.actor,
    )
    where = {"location": f"/v1/budgets/{made.budget_id}"}
    status = 201 if isinstance(made, BudgetCreated) else 200
    return Reply(value=made, status=status, headers=where)


async def list_budgets(call: ApiCall, query: PageQuery) -> Reply:
    """The budgets, for a token of all namespaces: these share them."""
    if not call.principal.everywhere:
        raise RequestProblem("forbidden", "budgets are listed for tokens of all namespaces")
    found = await call.engine.list_budgets(cursor=query.cursor, limit=check_limit(query.limit))
    return page(call, BudgetStatus, found.budgets, found.next_cursor, query)


async def get_budget_status(call: ApiCall) -> Reply:
    """How much of a budget is used; `If-Match` compares its definition and its period."""
    found = await call.engine.get_budget_status(call.text("budget_id"))
    return Reply(value=found, version=changed_version(found.updated_at))


async def update_budget_limits(call: ApiCall, body: BudgetChanges) -> BudgetLimitsChanged:
    """Change the limits of a budget."""
    return await call.engine.update_budget_limits(
        call.text("budget_id"),
        **msgspec.structs.asdict(body),
        expected_last_mutation_at=seen_at(call),
        actor=call.actor,
    )


async def report_usage(call: ApiCall, body: UsageRequest) -> Counted:
    """Count what an execution uses, if its budget allows it."""
    return await call.engine.report_usage(
        body.lease, call.text("budget_id"), body.dimensions, dedup_key=body.dedup_key
    )


async def report_usages(call: ApiCall, body: UsageReports) -> UsageAnswers:
    """Count what up to 1,000 executions use, each if its budget allows it."""
    many("reports", body.reports)
    results: list[Counted | EngineError] = []
    for each in body.reports:
        try:
            counted = await call.engine.report_usage(
                each.lease, each.budget_id, each.dimensions, dedup_key=each.dedup_key
            )
            results.append(counted)
        except EngineError as refused:
            results.append(refused)
    return UsageAnswers(results=results)


async def record_spend(call: ApiCall, body: SpendRequest) -> Counted:
    """Count what an execution has used."""
    await call.check_executions([body.execution_id])
    return await call.engine.record_spend(
        call.text("budget_id"),
        body.execution_id,
        body.deltas,
        idempotency_key=body.idempotency_key,
    )


async def release_budget(call: ApiCall, body: ReleaseBudgetRequest) -> BudgetReleased:
    """Give back what an execution has spent, as an operator."""
    await call.check_executions([body.execution_id])
    return await call.engine.release_budget(
        call.text("budget_id"), body.execution_id, reason=body.reason, actor=call.actor
    )


async def give_back(call: ApiCall, body: GiveBackRequest) -> BudgetReleased:
    """Give back what an execution has spent, for its handler."""
    await call.check_executions([body.execution_id])
    return await call.engine.give_back(call.text("budget_id"), body.execution_id)


async def reset_budget(call: ApiCall, body: ResetBudgetRequest) -> BudgetReset:
    """Let the usage begin at zero."""
    return await call.engine.reset_budget(
        call.text("budget_id"),
        expected_last_mutation_at=seen_at(call),
        reason=body.reason,
        actor=call.actor,
    )


async def report_usage_admin(call: ApiCall, body: AdminUsageRequest) -> Counted:
    """Count what was used outside of executions."""
    return await call.engine.report_usage_admin(
        call.text("budget_id"),
        body.dimensions,
        body.deltas,
        dedup_key=body.dedup_key,
        reason=body.reason,
        actor=call.actor,
    )


def _change(method: str, path: str, handler: Any, body: Any, answers: Any, **more: Any) -> Route:
    settings: dict[str, Any] = {"scope": Scope.OPERATE_ALL, "limit": CONTROL, **more}
    return route(method, path, handler, body=body, answers=answers, **settings)


ROUTES: Final[tuple[Route, ...]] = (
    _change(
        "POST",
        "/v1/budgets",
        create_budget,
        BudgetRequest,
        {201: BudgetCreated | BudgetAlreadySatisfied, 200: BudgetCreated | BudgetAlreadySatisfied},
    ),
    route(
        "GET",
        "/v1/budgets",
        list_budgets,
        scope=Scope.READ,
        query=PageQuery,
        answers={200: page_of(BudgetStatus)},
    ),
    route("GET", B, get_budget_status, scope=Scope.READ, answers={200: BudgetStatus}, etag=True),
    _change(
        "PATCH", B, update_budget_limits, BudgetChanges, {200: BudgetLimitsChanged}, if_match=True
    ),
    _change("POST", B + "/usage", report_usage, UsageRequest, {200: Counted}, scope=Scope.WORK),
    _change(
        "POST",
        "/v1/work/usage",
        report_usages,
        UsageReports,
        {200: UsageAnswers},
        scope=Scope.WORK,
        limit=BATCH,
    ),
    _change("POST", B + "/spend", record_spend, SpendRequest, {200: Counted}, scope=Scope.WORK),
    _change("POST", B + "/report", report_usage_admin, AdminUsageRequest, {200: Counted}),
    _change("POST", B + "/release", release_budget, ReleaseBudgetRequest, {200: BudgetReleased}),
    _change(
        "POST",
        B + "/give-back",
        give_back,
        GiveBackRequest,
        {200: BudgetReleased},
        scope=Scope.WORK,
    ),
    _change(
        "POST", B + "/reset", reset_budget, ResetBudgetRequest, {200: BudgetReset}, if_match=True
    ),
)
