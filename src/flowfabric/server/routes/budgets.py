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
from flowfabric.ids import ExecutionId, new_uuid
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.pages import PageQuery, check_limit, page, page_of
from flowfabric.server.table import CONTROL, Route, route
from flowfabric.states import EnforcementMode, Scope

B: Final = "/v1/budgets/{budget_id}"
Counted = UsageCounted | UsageAlreadyApplied | SoftBreach | HardBreach


class BudgetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How much of each dimension may be used; 0 is no limit."""

    hard_limits: Mapping[str, int]
    soft_limits: Mapping[str, int] = {}
    budget_id: str | None = None
    scope_type: str = "global"
    scope_id: str = ""
    enforcement_mode: EnforcementMode = EnforcementMode.STRICT
    reset_interval: float = 0.0


class BudgetChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What changes of a budget; what is absent stays."""

    hard_limits: Mapping[str, int] | None = None
    soft_limits: Mapping[str, int] | None = None
    enforcement_mode: EnforcementMode | None = None
    reset_interval: float | None = None


class UsageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an execution that the worker holds has used, or is about to use."""

    lease: Lease
    dimensions: Mapping[str, int]
    dedup_key: str | None = None


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


class ReleaseBudgetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Whose spend is given back."""

    execution_id: ExecutionId


class ResetBudgetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The usage begins at zero."""


async def create_budget(call: ApiCall, body: BudgetRequest) -> Reply:
    """Create a budget; 200 if it was there before."""
    names = list(body.hard_limits)
    made = await call.engine.create_budget(
        body.budget_id or new_uuid(),
        dimensions=names,
        hard_limits=[body.hard_limits[name] for name in names],
        soft_limits=[body.soft_limits.get(name, 0) for name in names],
        scope_type=body.scope_type,
        scope_id=body.scope_id,
        enforcement_mode=body.enforcement_mode,
        reset_interval=body.reset_interval,
    )
    where = {"location": f"/v1/budgets/{made.budget_id}"}
    status = 201 if isinstance(made, BudgetCreated) else 200
    return Reply(value=made, status=status, headers=where)


async def list_budgets(call: ApiCall, query: PageQuery) -> Reply:
    """The budgets of all namespaces."""
    found = await call.engine.list_budgets(cursor=query.cursor, limit=check_limit(query.limit))
    return page(call, BudgetStatus, found.budgets, found.next_cursor, query)


async def get_budget_status(call: ApiCall) -> BudgetStatus:
    """How much of a budget is used."""
    return await call.engine.get_budget_status(call.text("budget_id"))


async def update_budget_limits(call: ApiCall, body: BudgetChanges) -> BudgetLimitsChanged:
    """Change the limits of a budget."""
    return await call.engine.update_budget_limits(
        call.text("budget_id"), **msgspec.structs.asdict(body), actor=call.actor
    )


async def report_usage(call: ApiCall, body: UsageRequest) -> Counted:
    """Count what an execution uses, if its budget allows it."""
    return await call.engine.report_usage(
        body.lease, call.text("budget_id"), body.dimensions, dedup_key=body.dedup_key
    )


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
    """Give back what an execution has used."""
    await call.check_executions([body.execution_id])
    return await call.engine.release_budget(call.text("budget_id"), body.execution_id)


async def reset_budget(call: ApiCall, body: ResetBudgetRequest) -> BudgetReset:
    """Let the usage begin at zero."""
    return await call.engine.reset_budget(call.text("budget_id"), actor=call.actor)


async def report_usage_admin(call: ApiCall, body: AdminUsageRequest) -> Counted:
    """Count what was used outside of executions."""
    return await call.engine.report_usage_admin(
        call.text("budget_id"), body.dimensions, body.deltas, dedup_key=body.dedup_key
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
        scope=Scope.OPERATE_ALL,
        query=PageQuery,
        answers={200: page_of(BudgetStatus)},
    ),
    route("GET", B, get_budget_status, scope=Scope.READ, answers={200: BudgetStatus}),
    _change("PATCH", B, update_budget_limits, BudgetChanges, {200: BudgetLimitsChanged}),
    _change("POST", B + "/usage", report_usage, UsageRequest, {200: Counted}, scope=Scope.WORK),
    _change("POST", B + "/spend", record_spend, SpendRequest, {200: Counted}, scope=Scope.WORK),
    _change("POST", B + "/report", report_usage_admin, AdminUsageRequest, {200: Counted}),
    _change("POST", B + "/release", release_budget, ReleaseBudgetRequest, {200: BudgetReleased}),
    _change("POST", B + "/reset", reset_budget, ResetBudgetRequest, {200: BudgetReset}),
)
