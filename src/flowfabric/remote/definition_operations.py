"""Schedules, budgets and limits over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

import msgspec

from flowfabric.api.forms import Wanted, form
from flowfabric.engine.budgets import (
    get_budget_status,
    give_back,
    list_budgets,
    record_spend,
    release_budget,
    report_usage,
    report_usage_admin,
    reset_budget,
    update_budget_limits,
)
from flowfabric.engine.budgets.create_budget import BudgetAlreadySatisfied, BudgetCreated
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR
from flowfabric.engine.quotas import (
    check_admission,
    delete_quota_policy,
    get_quota_policy,
    list_quota_keys,
    list_quota_policies,
    release_admission,
    update_quota_policy,
)
from flowfabric.engine.quotas.create_quota_policy import QuotaPolicyCreated
from flowfabric.engine.quotas.quota_policy import QuotaPolicy
from flowfabric.engine.schedules import (
    backfill_schedule,
    delete_schedule,
    diff_schedules,
    explain_schedule,
    get_schedule,
    list_schedule_fires,
    list_schedules,
    pause_schedule,
    preview_schedule,
    resume_schedule,
    sync_schedules,
    trigger_schedule,
)
from flowfabric.engine.schedules.definition import ScheduleDefinition
from flowfabric.engine.schedules.schedule import Schedule
from flowfabric.limits import QuotaLimits
from flowfabric.remote.row import remote
from flowfabric.remote.transport import Request, Transport
from flowfabric.states import EnforcementMode

_S: Final = "/v1/schedules/{name}"
_B: Final = "/v1/budgets/{budget_id}"
_Q: Final = "/v1/quotas/{limit}"
_READ: Final = Wanted("out", packed=True, read=True)
_GIVEN: Final = Wanted("in", packed=True)
_SCHEDULE: Final = form(Schedule, _READ)
_DEFINITION: Final = form(ScheduleDefinition, _GIVEN)
_LIMITS: Final = form(QuotaLimits, _GIVEN)
_POLICY_CREATED: Final = form(QuotaPolicyCreated, _READ)
_BUDGET: Final = form(BudgetCreated | BudgetAlreadySatisfied, _READ)
_IN_URL: Final = frozenset({"namespace"})


class DefinitionOperations:
    """What is defined once and holds for many executions."""

    transport: Transport

    # Schedules.

    async def create_schedule(
        self, definition: ScheduleDefinition, *, actor: str = "operator"
    ) -> Schedule:
        """As `Engine.create_schedule`."""
        body = _DEFINITION.dumped(definition)
        _, data = await self.transport.call(Request(method="POST", path="/v1/schedules", body=body))
        return _SCHEDULE.loaded(msgspec.msgpack.decode(data, type=_SCHEDULE.wire))

    async def update_schedule(
        self,
        definition: ScheduleDefinition,
        *,
        revision: int | None = None,
        actor: str = "operator",
    ) -> Schedule:
        """As `Engine.update_schedule`."""
        body = {"definition": _DEFINITION.dumped(definition), "revision": revision}
        path = f"/v1/schedules/{quote(definition.name, safe='')}"
        _, data = await self.transport.call(Request(method="PUT", path=path, body=body))
        return _SCHEDULE.loaded(msgspec.msgpack.decode(data, type=_SCHEDULE.wire))

    get_schedule = remote(get_schedule.get_schedule, f"GET {_S}")
    list_schedules = remote(list_schedules.list_schedules, "GET /v1/schedules", page="schedules")
    delete_schedule = remote(delete_schedule.delete_schedule, f"DELETE {_S}")
    pause_schedule = remote(pause_schedule.pause_schedule, f"POST {_S}/pause", in_url=_IN_URL)
    resume_schedule = remote(resume_schedule.resume_schedule, f"POST {_S}/resume", in_url=_IN_URL)
    trigger_schedule = remote(
        trigger_schedule.trigger_schedule, f"POST {_S}/trigger", in_url=_IN_URL
    )
    backfill_schedule = remote(
        backfill_schedule.backfill_schedule, f"POST {_S}/backfill", in_url=_IN_URL
    )
    list_schedule_fires = remote(
        list_schedule_fires.list_schedule_fires, f"GET {_S}/history", answer="items"
    )
    preview_schedule = remote(
        preview_schedule.preview_schedule, f"GET {_S}/preview", answer="items"
    )
    explain_schedule = remote(explain_schedule.explain_schedule, f"GET {_S}/explanation")
    diff_schedules = remote(diff_schedules.diff_schedules, "POST /v1/schedules/diff", reads=True)
    sync_schedules = remote(sync_schedules.sync_schedules, "POST /v1/schedules/sync")

    # Budgets.

    async def create_budget(
        self,
        budget_id: UUID | str,
        *,
        dimensions: Sequence[str],
        hard_limits: Sequence[int],
        soft_limits: Sequence[int],
        scope_type: str = "global",
        scope_id: str = "",
        enforcement_mode: EnforcementMode | str = EnforcementMode.STRICT,
        on_hard_limit: str = "fail",
        on_soft_limit: str = "warn",
        reset_interval: float | timedelta = 0,
        actor: str = DEFAULT_ACTOR,
    ) -> BudgetCreated | BudgetAlreadySatisfied:
        """As `Engine.create_budget`, by the caller of the server."""
        every = reset_interval
        body: dict[str, Any] = {
            "budget_id": str(budget_id),
            "hard_limits": dict(zip(dimensions, hard_limits, strict=True)),
            "soft_limits": dict(zip(dimensions, soft_limits, strict=True)),
            "scope_type": scope_type,
            "scope_id": scope_id,
            "enforcement_mode": enforcement_mode,
            "on_hard_limit": on_hard_limit,
            "on_soft_limit": on_soft_limit,
            "reset_interval": every.total_seconds() if isinstance(every, timedelta) else every,
        }
        _, data = await self.transport.call(Request(method="POST", path="/v1/budgets", body=body))
        return _BUDGET.loaded(msgspec.msgpack.decode(data, type=_BUDGET.wire))

    get_budget_status = remote(get_budget_status.get_budget_status, f"GET {_B}")
    list_budgets = remote(list_budgets.list_budgets, "GET /v1/budgets", page="budgets")
    update_budget_limits = remote(update_budget_limits.update_budget_limits, f"PATCH {_B}")
    report_usage = remote(
        report_usage.report_usage,
        f"POST {_B}/usage",
        names={"input_tokens": "", "output_tokens": "", "wall_ms": ""},
    )
    report_usage_admin = remote(
        report_usage_admin.report_usage_admin, f"POST {_B}/report", names={"now": ""}
    )
    record_spend = remote(record_spend.record_spend, f"POST {_B}/spend")
    release_budget = remote(release_budget.release_budget, f"POST {_B}/release")
    give_back = remote(give_back.give_back, f"POST {_B}/give-back")
    reset_budget = remote(reset_budget.reset_budget, f"POST {_B}/reset", names={"now": ""})

    # Limits.

    async def create_quota_policy(
        self,
        limit: str | UUID,
        limits: QuotaLimits,
        *,
        namespace: str = "default",
        now: datetime | None = None,
        actor: str = DEFAULT_ACTOR,
    ) -> QuotaPolicyCreated:
        """As `Engine.create_quota_policy`, at the time and by the caller of the server."""
        named = {"quota_policy_id": limit} if isinstance(limit, UUID) else {"name": limit}
        body = {**named, "limits": _LIMITS.dumped(limits), "namespace": namespace}
        _, data = await self.transport.call(Request(method="POST", path="/v1/quotas", body=body))
        return _POLICY_CREATED.loaded(msgspec.msgpack.decode(data, type=_POLICY_CREATED.wire))

    async def read_quota_policy_limits(
        self, limit: str | UUID, *, namespace: str = "default"
    ) -> QuotaLimits | None:
        """As `Engine.read_quota_policy_limits`."""
        found: QuotaPolicy | None = await self.get_quota_policy(limit, namespace=namespace)
        return None if found is None else found.limits

    get_quota_policy = remote(get_quota_policy.get_quota_policy, f"GET {_Q}", optional=True)
    list_quota_policies = remote(
        list_quota_policies.list_quota_policies,
        "GET /v1/quotas",
        answer="items",
        names={"limit": ""},
    )
    list_quota_keys = remote(
        list_quota_keys.list_quota_keys,
        f"GET {_Q}/keys",
        answer="items",
        names={"count": "limit"},
    )
    update_quota_policy = remote(
        update_quota_policy.update_quota_policy, f"PATCH {_Q}", in_url=_IN_URL
    )
    delete_quota_policy = remote(delete_quota_policy.delete_quota_policy, f"DELETE {_Q}")
    check_admission = remote(
        check_admission.check_admission,
        f"POST {_Q}/admit",
        in_url=_IN_URL,
        names={"limits": "", "now": ""},
    )
    release_admission = remote(
        release_admission.release_admission, f"POST {_Q}/release", in_url=_IN_URL
    )
