"""Budgets and limits: what was used of them, and who waits for them."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec

from flowfabric.dashboard.answers import PageAnswer
from flowfabric.dashboard.pages.budget_charts import usage_charts
from flowfabric.dashboard.pages.quotas import caps
from flowfabric.dashboard.problems import FormProblem, not_found
from flowfabric.dashboard.table import ActDone, Dialog, DialogField, Preview, act, screen
from flowfabric.dashboard.view.durations import parse_length
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.engine.budgets.create_budget import BudgetCreated
from flowfabric.engine.budgets.list_held_back import COUNTED
from flowfabric.engine.budgets.status import BudgetStatus
from flowfabric.engine.quotas.list_quota_keys import QuotaKey
from flowfabric.engine.quotas.quota_policy import QuotaPolicy
from flowfabric.errors import EngineError
from flowfabric.states import EnforcementMode, Scope

_BUSIEST: Final = 10
WINDOWS: Final = ("24h", "1h", "6h", "7d", "30d")


class DimensionUse(msgspec.Struct, frozen=True, kw_only=True):
    """One dimension of a budget."""

    name: str
    used: int
    soft: int
    hard: int

    @property
    def whole(self) -> int:
        """What the bar stands for: the hard limit; without one, what is used or warned at."""
        return self.hard or max(self.used, self.soft, 1)

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
            keys = await visit.engine.list_busiest_keys(
                policy.quota_policy_id, namespace=namespace, count=_BUSIEST
            )
            limits.append(ShownLimit(policy=policy, keys=keys))
    values = {
        "budgets": [
            (each, dimensions(each), await _held(visit, each) if each.spent else 0)
            for each in shared
        ],
        "limits": limits,
        "caps": caps,
        "sees_budgets": visit.principal.everywhere,
    }
    return PageAnswer(template="budgets.html", title="Budgets", section="budgets", values=values)


async def _held(visit: Visit, budget: BudgetStatus) -> int:
    return (await visit.engine.list_held_back(budget.budget_id, limit=1)).count


async def budget(visit: Visit) -> PageAnswer:
    """One budget: what was used of it, by whom, and what waits for it."""
    found = await _budget(visit)
    dims, window = dimensions(found), visit.chosen("window", WINDOWS)
    within = parse_length(window) or timedelta(days=1)
    history = await visit.engine.read_budget_history(found.budget_id, window=within)
    values = {
        "budget": found,
        "dims": dims,
        "over_time": usage_charts(history, [(d.name, d.soft, d.hard) for d in dims], within),
        "window": window,
        "spenders": await visit.engine.list_spend(found.budget_id, limit=20),
        "attached": await visit.engine.read_attached(found.budget_id, limit=20),
        "held": await visit.engine.list_held_back(found.budget_id, limit=20),
        "counted": COUNTED,
    }
    title = f"{found.scope_type} {found.scope_id}".strip()
    return PageAnswer(template="budget.html", title=title, section="budgets", values=values)


async def _budget(visit: Visit) -> BudgetStatus:
    if visit.principal.everywhere:
        try:
            return await visit.engine.get_budget_status(visit.uuid("budget_id"))
        except EngineError:
            pass
    raise not_found("There is no such budget.")


# A new one.


async def ask_new(visit: Visit) -> Dialog:
    return Dialog(
        question="Make a budget?",
        effect="Executions that name it are held back while a dimension has no room under its hard"
        " limit.",
        button="Make budget",
        back="/budgets",
        fields=[
            DialogField(
                name="name", label="Name", required=True, hint="Code names the budget by it."
            ),
            DialogField(name="scope_type", label="Scope", value="global", half=True),
            DialogField(name="scope_id", label="Of", half=True, hint="Such as a tenant."),
            DialogField(
                name="limits",
                label="Dimensions",
                kind="area",
                required=True,
                hint="A line each: name, hard limit, soft limit; 0 is no limit.",
                value="tokens 1000000 800000",
            ),
            DialogField(
                name="reset", label="Reset every", hint="Such as 1d; empty: never.", half=True
            ),
            DialogField(
                name="mode",
                label="At the hard limit",
                kind="select",
                value=EnforcementMode.STRICT.value,
                half=True,
                choices=(("strict", "work is held back"), ("warn", "it is only counted")),
            ),
        ],
    )


def _dimensions(form: SentForm) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    for line in form.text("limits").splitlines():
        words = line.split()
        if not words:
            continue
        if len(words) != 3 or not all(each.isascii() and each.isdigit() for each in words[1:]):
            raise FormProblem("limits", f"has {line!r}, which is not NAME HARD SOFT")
        found.append((words[0], int(words[1][:18]), int(words[2][:18])))
    if not found:
        raise FormProblem("limits", "must name at least one")
    return found


async def do_new(visit: Visit, form: SentForm) -> ActDone:
    rows = _dimensions(form)
    name, reset = form.text("name").strip(), form.text("reset").strip()
    every = parse_length(reset) if reset else None
    if reset and every is None:
        raise FormProblem("reset", "must look like 12h or 1d")
    if not name:
        raise FormProblem("name", "is needed")
    made = await visit.engine.create_budget(
        name,
        dimensions=[row[0] for row in rows],
        hard_limits=[row[1] for row in rows],
        soft_limits=[row[2] for row in rows],
        scope_type=form.text("scope_type").strip() or "global",
        scope_id=form.text("scope_id").strip() or name,
        enforcement_mode=form.text("mode", "strict"),
        reset_interval=0 if every is None else every,
        actor=visit.actor,
    )
    to = visit.url(f"/budgets/{made.budget_id}")
    word = "was made" if isinstance(made, BudgetCreated) else "was there before"
    return ActDone(message=f"The budget {name} {word}.", to=to)


# Limits and a new period.


async def ask_limits(visit: Visit) -> Dialog:
    found = await _budget(visit)
    fields = [
        DialogField(
            name=f"{side}.{each.name}",
            label=f"{each.name}, {side} limit",
            kind="number",
            value=str(value),
            hint=f"{each.used:,} used; 0 is no limit." if side == "hard" else "",
            half=True,
        )
        for each in dimensions(found)
        for side, value in (("hard", each.hard), ("soft", each.soft))
    ]
    return Dialog(
        question="Change the limits of this budget?",
        effect="Work that it held back and that has room now can be claimed at once.",
        button="Change limits",
        back=f"/budgets/{found.budget_id}",
        fields=fields,
    )


def _limits(form: SentForm, found: BudgetStatus) -> dict[str, dict[str, int]]:
    given: dict[str, dict[str, int]] = {"hard": {}, "soft": {}}
    for each in dimensions(found):
        for side, limits in given.items():
            limits[each.name] = form.whole(f"{side}.{each.name}", low=0, high=10**12)
    return given


async def preview_limits(visit: Visit, form: SentForm) -> Preview:
    """How many executions the new limits let go."""
    found = await _budget(visit)
    hard = _limits(form, found)["hard"]
    spent = [name for name, limit in hard.items() if 0 < limit <= found.usage.get(name, 0)]
    held = await _held(visit, found)
    if spent:
        return Preview(text=f"{', '.join(spent)} stays used up: {held:,} executions are held back.")
    return Preview(text=f"There is room: it lets {held:,} executions go.")


async def do_limits(visit: Visit, form: SentForm) -> ActDone:
    found = await _budget(visit)
    given = _limits(form, found)
    await visit.engine.update_budget_limits(
        found.budget_id,
        hard_limits=given["hard"],
        soft_limits=given["soft"],
        reason=form.reason(),
        actor=visit.actor,
    )
    return ActDone(message="The limits were changed.")


async def ask_reset(visit: Visit) -> Dialog:
    found = await _budget(visit)
    held = await _held(visit, found)
    return Dialog(
        question="Reset this budget?",
        effect="A new period begins: what was used counts as 0, and"
        f" {held:,} executions that it holds back can be claimed at once.",
        button="Reset budget",
        back=f"/budgets/{found.budget_id}",
        danger=True,
    )


async def do_reset(visit: Visit, form: SentForm) -> ActDone:
    found = await _budget(visit)
    await visit.engine.reset_budget(found.budget_id, reason=form.reason(), actor=visit.actor)
    return ActDone(message="The budget was reset.")


ROUTES: Final = (
    screen("/budgets", budgets),
    screen("/budgets/{budget_id}", budget),
    act("/budgets/new", ask_new, do_new, Scope.OPERATE_ALL),
    act(
        "/budgets/{budget_id}/limits",
        ask_limits,
        do_limits,
        Scope.OPERATE_ALL,
        preview=preview_limits,
    ),
    act("/budgets/{budget_id}/reset", ask_reset, do_reset, Scope.OPERATE_ALL),
)
