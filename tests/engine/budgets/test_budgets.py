"""Budgets are created, listed, changed and reset."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from flowfabric.budgets import budget_id
from flowfabric.db.rows import Connection
from flowfabric.engine import (
    BudgetAlreadySatisfied,
    BudgetCreated,
    Engine,
    ExecutionId,
)
from flowfabric.engine.budgets.prune_usage_keys import prune_usage_keys
from flowfabric.engine.budgets.reset_budgets import reset_budgets
from flowfabric.engine.retention.delete_finished import delete_finished
from flowfabric.errors import NotFound, ValidationError
from flowfabric.states import EnforcementMode
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another, actions

HOUR = timedelta(hours=1)
LIMITS: dict[str, Any] = {
    "dimensions": ["tokens"],
    "hard_limits": [100],
    "soft_limits": [80],
}


async def test_a_budget_is_created_once_and_its_status_says_all(
    engine: Engine, ff_clock: Clock
) -> None:
    first = await engine.create_budget(
        "b",
        scope_type="tenant",
        scope_id="t-1",
        on_hard_limit="stop",
        on_soft_limit="mail",
        reset_interval=HOUR,
        **LIMITS,
    )
    now = await ff_clock.now()

    status = await engine.get_budget_status(budget_id("b"))

    assert first == BudgetCreated(budget_id=budget_id("b"))
    assert (status.scope_type, status.scope_id) == ("tenant", "t-1")
    assert status.enforcement_mode is EnforcementMode.STRICT
    assert (status.hard_limits, status.soft_limits) == ({"tokens": 100}, {"tokens": 80})
    assert (status.on_hard_limit, status.on_soft_limit) == ("stop", "mail")
    assert (status.reset_interval, status.next_reset_at) == (3600, now + HOUR)
    assert (status.usage, status.reset_count, status.breach_count) == ({}, 0, 0)
    assert (status.created_at, status.last_breach_at, status.spent) == (now, None, False)


async def test_creating_again_changes_nothing_and_says_whether_it_is_the_same(
    engine: Engine, db: Connection
) -> None:
    await engine.create_budget("b", actor="eve", **LIMITS)

    same = await engine.create_budget("b", **LIMITS)
    changed: dict[str, Any] = LIMITS | {"hard_limits": [7]}
    other = await engine.create_budget("b", **changed)

    assert same == BudgetAlreadySatisfied(budget_id=budget_id("b"), same_definition=True)
    assert other == BudgetAlreadySatisfied(budget_id=budget_id("b"), same_definition=False)
    assert (await engine.get_budget_status("b")).hard_limits == {"tokens": 100}
    [made] = await actions(db)
    assert (made.event_type, made.actor) == ("budget_created", "eve")
    assert made.details["limits"]["hard_limits"] == {"tokens": 100}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"hard_limits": [1, 2]}, "hard_limits"),
        ({"soft_limits": []}, "soft_limits"),
        ({"dimensions": ["a", "a"], "hard_limits": [1, 1], "soft_limits": [1, 1]}, "twice"),
        ({"hard_limits": [-1]}, "hard_limits"),
        ({"hard_limits": [2**63]}, "hard_limits"),
        ({"soft_limits": [0.5]}, "soft_limits"),
        ({"soft_limits": [False]}, "soft_limits"),
        ({"enforcement_mode": "loose"}, "enforcement_mode 'loose'"),
        ({"reset_interval": -1}, "reset_interval"),
        ({"reset_interval": 0.0001}, "reset_interval"),
        ({"scope_type": ""}, "scope_type"),
        ({"scope_id": 7}, "scope_id"),
        ({"budget_id": ""}, "budget"),
        ({"budget_id": 7}, "budget"),
    ],
)
async def test_a_definition_that_cannot_be_is_refused(
    engine: Engine, wrong: dict[str, Any], why: str
) -> None:
    arguments: dict[str, Any] = {"budget_id": "b"} | LIMITS | wrong
    with pytest.raises(ValidationError, match=why):
        await engine.create_budget(**arguments)

    assert (await engine.list_budgets()).budgets == []


async def test_budgets_are_listed_page_by_page(engine: Engine) -> None:
    names = [f"b{number}" for number in range(7)]
    for name in names:
        await engine.create_budget(name, scope_id=name, **LIMITS)

    found, cursor = list[str](), None
    while True:
        page = await engine.list_budgets(cursor=cursor, limit=3)
        found += [each.scope_id for each in page.budgets]
        cursor = page.next_cursor
        if cursor is None:
            break

    assert sorted(found) == names
    for cursor in ("", "x", "1:x", "99999:" + str(budget_id("b"))):
        with pytest.raises(ValidationError, match="cursor"):
            await engine.list_budgets(cursor=cursor)


async def test_limits_are_changed_by_dimension(
    engine: Engine, db: Connection, ff_clock: Clock
) -> None:
    await engine.create_budget("b", **LIMITS)

    changed = await engine.update_budget_limits(
        "b", hard_limits={"calls": 5, "tokens": 0}, reset_interval=60, actor="ann"
    )

    assert changed.hard_limits == {"calls": 5, "tokens": 0}
    assert changed.soft_limits == {"tokens": 80}
    status = await engine.get_budget_status("b")
    assert status.next_reset_at == await ff_clock.now() + timedelta(minutes=1)
    await engine.update_budget_limits("b", enforcement_mode="warn")
    assert (await engine.get_budget_status("b")).enforcement_mode is EnforcementMode.WARN
    events = await actions(db)
    assert [(each.event_type, each.actor) for each in events] == [
        ("budget_created", "operator"),
        ("budget_limits_changed", "ann"),
        ("budget_limits_changed", "operator"),
    ]
    modes = events[2].details["old_enforcement_mode"], events[2].details["new_enforcement_mode"]
    assert modes == ("strict", "warn")
    await engine.update_budget_limits("b", hard_limits={"calls": 5}, enforcement_mode="warn")
    assert await actions(db) == events, "nothing was changed"
    with pytest.raises(ValidationError, match="hard_limits"):
        await engine.update_budget_limits("b", hard_limits={"calls": True})
    with pytest.raises(NotFound, match="budget none"):
        await engine.update_budget_limits("none")


async def test_a_reset_begins_a_new_period(engine: Engine, ff_clock: Clock) -> None:
    await engine.create_budget("b", reset_interval=HOUR, **LIMITS)
    await engine.report_usage_admin("b", ["tokens"], [90])
    await engine.report_usage_admin("b", ["tokens"], [90])
    await ff_clock.advance(60)

    reset = await engine.reset_budget("b", actor="ann")

    now = await ff_clock.now()
    status = await engine.get_budget_status("b")
    assert (reset.next_reset_at, reset.period_no) == (now + HOUR, 1)
    assert (status.usage, status.reset_count, status.last_reset_at) == ({"tokens": 0}, 1, now)
    assert (status.breach_count, status.soft_breach_count) == (1, 1)
    assert (status.last_breach_at, status.last_breach_dim) == (None, None)
    await engine.create_budget("lifetime", **LIMITS)
    assert (await engine.reset_budget("lifetime")).next_reset_at is None
    with pytest.raises(NotFound, match="budget none"):
        await engine.reset_budget("none")


async def test_the_sweep_resets_what_is_due_once_and_counts_from_now(
    engine: Engine, db: Connection, ff_clock: Clock
) -> None:
    for name, interval in (("hourly", HOUR), ("daily", 24 * HOUR), ("lifetime", 0)):
        await engine.create_budget(name, reset_interval=interval, **LIMITS)
        await engine.report_usage_admin(name, ["tokens"], [9])
    assert await reset_budgets(db, 20) == 0
    await ff_clock.advance(5 * HOUR + timedelta(minutes=1))

    assert [await reset_budgets(db, 20) for _ in range(2)] == [1, 0]

    hourly = await engine.get_budget_status("hourly")
    assert (hourly.usage["tokens"], hourly.period_no) == (0, 1)
    assert hourly.next_reset_at == await ff_clock.now() + HOUR
    assert (await engine.get_budget_status("daily")).usage == {"tokens": 9}
    await ff_clock.advance(30 * 24 * HOUR)
    assert [await reset_budgets(db, 1) for _ in range(3)] == [1, 1, 0]
    assert (await engine.get_budget_status("lifetime")).usage == {"tokens": 9}


async def test_a_budget_that_somebody_keeps_locked_hides_no_other_from_the_sweep(
    engine: Engine, db: Connection, ff_clock: Clock, another: Another
) -> None:
    for name in ("longest overdue", "second"):
        await engine.create_budget(name, reset_interval=HOUR, **LIMITS)
        await ff_clock.advance(1)
    await ff_clock.advance(HOUR)
    holder = await another()

    async with holder.transaction():
        lock = "SELECT FROM ff.budget_policy WHERE budget_id = $1 FOR UPDATE"
        await holder.fetch(lock, budget_id("longest overdue"))
        assert [await reset_budgets(db, 1) for _ in range(2)] == [1, 0]

    assert (await engine.get_budget_status("second")).reset_count == 1
    assert await reset_budgets(db, 1) == 1


async def test_keys_are_deleted_after_a_day(
    engine: Engine, db: Connection, ff_clock: Clock
) -> None:
    for key in ("a", "b", "c"):
        await engine.report_usage_admin("b", ["tokens"], [1], dedup_key=key)
    await ff_clock.advance(24 * HOUR)
    assert await prune_usage_keys(db, 100) == 0
    await ff_clock.advance(0.001)

    assert [await prune_usage_keys(db, 2) for _ in range(3)] == [2, 1, 0]


async def test_a_ledger_goes_with_its_execution_and_its_spend_stays_counted(
    engine: Engine, db: Connection, ff_clock: Clock
) -> None:
    lease = await given.claimed(db)
    other = ExecutionId.mint()
    for execution in (lease.execution_id, other):
        await engine.record_spend("b", execution, {"tokens": 3})
    await engine.cancel_execution(lease.execution_id, reason="over")
    await ff_clock.advance(48 * HOUR)

    assert await delete_finished(db, 100) == 1

    assert await db.fetchval("SELECT count(*) FROM ff.budget_usage_by_exec") == 1
    assert (await engine.release_budget("b", lease.execution_id)).released == {}
    assert (await engine.read_budget_usage_and_limits("b")).usage == {"tokens": 6}
