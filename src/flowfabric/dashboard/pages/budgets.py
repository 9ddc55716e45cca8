"""Budgets and limits: what was used of them, and who waits for them."""

from __future__ import annotations

from typing import Final

import msgspec

from flowfabric.dashboard.answers import PageAnswer
from flowfabric.dashboard.problems import FormProblem, not_found
from flowfabric.dashboard.table import ActDone, Dialog, DialogField, act, screen
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.engine.budgets.status import BudgetStatus
from flowfabric.engine.quotas.list_quota_keys import QuotaKey
from flowfabric.engine.quotas.quota_policy import QuotaPolicy
from flowfabric.errors import EngineError
from flowfabric.states import Scope


class DimensionUse(msgspec.Struct, frozen=True, kw_only=True):
    """One dimension of a budget."""

    name: str
    used: int
    soft: int
    hard: int

    @property
    def hue(self) -> str:
        """Red at the hard limit, amber at the soft one."""
        if self.hard and self.used >= self.hard:
            return "red"
        return "amber" if self.soft and self.used >= self.soft else "blue"


class ShownLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit and its busiest keys."""

    policy: QuotaPolicy
    keys: list[QuotaKey]


def dimensions(budget: BudgetStatus) -> list[DimensionUse]:
    """What was used of each dimension."""
    names = sorted({*budget.usage, *budget.hard_limits, *budget.soft_limits})
    return [
        DimensionUse(
            name=each,
            used=budget.usage.get(each, 0),
            soft=budget.soft_limits.get(each, 0),
            hard=budget.hard_limits.get(each, 0),
        )
        for each in names
    ]


async def budgets(visit: Visit) -> PageAnswer:
    """Budgets, which all namespaces share, and the limits of those that are looked at."""
    shared = (
        (await visit.engine.list_budgets(limit=200)).budgets if visit.principal.everywhere else []
    )
    limits: list[ShownLimit] = []
    for namespace in (await visit.namespaces())[:50]:
        for policy in await visit.engine.list_quota_policies(namespace=namespace, limit=100):
            keys = await visit.engine.list_quota_keys(
                policy.quota_policy_id, namespace=namespace, count=10
            )
            limits.append(ShownLimit(policy=policy, keys=keys))
    values = {
        "budgets": [(each, dimensions(each)) for each in shared],
        "limits": limits,
        "sees_budgets": visit.principal.everywhere,
    }
    return PageAnswer(template="budgets.html", title="Budgets", section="budgets", values=values)


async def _budget(visit: Visit) -> BudgetStatus:
    if visit.principal.everywhere:
        try:
            return await visit.engine.get_budget_status(visit.uuid("budget_id"))
        except EngineError:
            pass
    raise not_found("There is no such budget.")


async def ask_limits(visit: Visit) -> Dialog:
    found = await _budget(visit)
    fields = [
        DialogField(
            name=f"{side}.{each.name}",
            label=f"{each.name}, {side} limit",
            kind="number",
            value=str(value),
            hint="0 is no limit.",
        )
        for each in dimensions(found)
        for side, value in (("hard", each.hard), ("soft", each.soft))
    ]
    return Dialog(
        question="Change the limits of this budget?",
        effect="Work that it held back and that has room now can be claimed at once.",
        button="Change limits",
        back="/budgets",
        fields=fields,
    )


async def do_limits(visit: Visit, form: SentForm) -> ActDone:
    found = await _budget(visit)
    given: dict[str, dict[str, int]] = {"hard": {}, "soft": {}}
    for each in dimensions(found):
        for side, limits in given.items():
            limits[each.name] = form.whole(f"{side}.{each.name}", low=0, high=10**12)
            if not form.text(f"{side}.{each.name}"):
                raise FormProblem(f"{side}.{each.name}", "is needed")
    await visit.engine.update_budget_limits(
        found.budget_id, hard_limits=given["hard"], soft_limits=given["soft"], actor=visit.actor
    )
    return ActDone(message="The limits were changed.")


async def ask_reset(visit: Visit) -> Dialog:
    await _budget(visit)
    return Dialog(
        question="Reset this budget?",
        effect="What was used counts as 0, and work that it held back can be claimed at once.",
        button="Reset budget",
        back="/budgets",
        danger=True,
    )


async def do_reset(visit: Visit, form: SentForm) -> ActDone:
    found = await _budget(visit)
    form.reason()
    await visit.engine.reset_budget(found.budget_id, actor=visit.actor)
    return ActDone(message="The budget was reset.")


ROUTES: Final = (
    screen("/budgets", budgets),
    act("/budgets/{budget_id}/limits", ask_limits, do_limits, Scope.OPERATE_ALL),
    act("/budgets/{budget_id}/reset", ask_reset, do_reset, Scope.OPERATE_ALL),
)
