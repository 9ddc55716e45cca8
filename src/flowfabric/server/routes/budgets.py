"""Budgets, which all namespaces share, and the limits (quotas) of one namespace."""

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
    QuotaKey,
    QuotaLimits,
    QuotaPolicy,
    QuotaPolicyCreated,
    SoftBreach,
    UsageAlreadyApplied,
    UsageCounted,
)
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId, new_uuid
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.pages import NamespaceQuery, PageQuery, check_limit, page, page_of
from flowfabric.server.table import CONTROL, Route, route
from flowfabric.states import EnforcementMode, Scope

B: Final = "/v1/budgets/{budget_id}"
Q: Final = "/v1/quotas/{limit}"
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


class ReleaseBudgetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Whose spend is given back."""

    execution_id: ExecutionId


class ResetBudgetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The usage begins at zero."""


class QuotaRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A limit by its name."""

    name: str
    limits: QuotaLimits
    namespace: str | None = None


class QuotaChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The limits from now on."""

    limits: QuotaLimits


class QuotaList(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a namespace."""

    items: list[QuotaPolicy]


class QuotaKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a limit: what holds their slots, and what waits."""

    items: list[QuotaKey]


class QuotaKeysQuery(NamespaceQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which keys."""

    limit_key: str | None = None
    after: int | None = None
    limit: int = 50


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
    return await call.engine.get_budget_status(call.uuid("budget_id"))


async def update_budget_limits(call: ApiCall, body: BudgetChanges) -> BudgetLimitsChanged:
    """Change the limits of a budget."""
    return await call.engine.update_budget_limits(
        call.uuid("budget_id"), **msgspec.structs.asdict(body), actor=call.actor
    )


async def report_usage(call: ApiCall, body: UsageRequest) -> Counted:
    """Count what an execution uses, if its budget allows it."""
    return await call.engine.report_usage(
        body.lease, call.uuid("budget_id"), body.dimensions, dedup_key=body.dedup_key
    )


async def record_spend(call: ApiCall, body: SpendRequest) -> Counted:
    """Count what an execution has used."""
    await call.check_executions([body.execution_id])
    return await call.engine.record_spend(
        call.uuid("budget_id"),
        body.execution_id,
        body.deltas,
        idempotency_key=body.idempotency_key,
    )


async def release_budget(call: ApiCall, body: ReleaseBudgetRequest) -> BudgetReleased:
    """Give back what an execution has used."""
    await call.check_executions([body.execution_id])
    return await call.engine.release_budget(call.uuid("budget_id"), body.execution_id)


async def reset_budget(call: ApiCall, body: ResetBudgetRequest) -> BudgetReset:
    """Let the usage begin at zero."""
    return await call.engine.reset_budget(call.uuid("budget_id"), actor=call.actor)


async def create_quota_policy(call: ApiCall, body: QuotaRequest) -> Reply:
    """Create a limit; 200 if it was there before."""
    made = await call.engine.create_quota_policy(
        body.name, body.limits, namespace=call.namespace(body.namespace)
    )
    return Reply(value=made, status=201 if made.created else 200)


async def list_quota_policies(call: ApiCall, query: NamespaceQuery) -> QuotaList:
    """The limits of a namespace."""
    found = await call.engine.list_quota_policies(namespace=call.namespace(query.namespace))
    return QuotaList(items=found)


async def get_quota_policy(call: ApiCall, query: NamespaceQuery) -> QuotaPolicy:
    """One limit."""
    name = call.text("limit")
    found = await call.engine.get_quota_policy(name, namespace=call.namespace(query.namespace))
    if found is None:
        raise NotFound("limit", name)
    return found


async def update_quota_policy(
    call: ApiCall, query: NamespaceQuery, body: QuotaChanges
) -> QuotaPolicy:
    """Change a limit."""
    return await call.engine.update_quota_policy(
        call.text("limit"), body.limits, namespace=call.namespace(query.namespace)
    )


async def list_quota_keys(call: ApiCall, query: QuotaKeysQuery) -> QuotaKeys:
    """The keys of a limit: what holds their slots, and what waits."""
    found = await call.engine.list_quota_keys(
        call.text("limit"),
        namespace=call.namespace(query.namespace),
        limit_key=query.limit_key,
        after=query.after,
        count=check_limit(query.limit),
    )
    return QuotaKeys(items=found)


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
    _change("POST", B + "/release", release_budget, ReleaseBudgetRequest, {200: BudgetReleased}),
    _change("POST", B + "/reset", reset_budget, ResetBudgetRequest, {200: BudgetReset}),
    _change(
        "POST",
        "/v1/quotas",
        create_quota_policy,
        QuotaRequest,
        {201: QuotaPolicyCreated, 200: QuotaPolicyCreated},
        scope=Scope.OPERATE,
    ),
    route(
        "GET",
        "/v1/quotas",
        list_quota_policies,
        scope=Scope.READ,
        query=NamespaceQuery,
        answers={200: QuotaList},
    ),
    route(
        "GET",
        Q,
        get_quota_policy,
        scope=Scope.READ,
        query=NamespaceQuery,
        answers={200: QuotaPolicy},
    ),
    _change(
        "PATCH",
        Q,
        update_quota_policy,
        QuotaChanges,
        {200: QuotaPolicy},
        scope=Scope.OPERATE,
        query=NamespaceQuery,
    ),
    route(
        "GET",
        Q + "/keys",
        list_quota_keys,
        scope=Scope.READ,
        query=QuotaKeysQuery,
        answers={200: QuotaKeys},
    ),
)
