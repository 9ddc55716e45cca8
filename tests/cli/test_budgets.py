"""`ff budgets`: what is used of them, their limits, and new periods."""

from __future__ import annotations

from flowfabric.budgets import budget_id
from flowfabric.client.identity import user_at_host
from flowfabric.db.rows import Connection
from flowfabric.engine.budgets.report_usage_admin import report_usage_admin
from tests.cli.conftest import Inside, one_line
from tests.engine.controls import actions


async def test_a_budget_is_created_and_shown_with_its_use(ff: Inside, db: Connection) -> None:
    assert "Create one" in (await ff("budgets")).out
    made = await ff(
        *("budgets", "create", "agent", "--hard", "tokens=1000", "--soft", "tokens=800"),
        *("--hard", "calls=5", "--every", "1d"),
    )
    await report_usage_admin(db, "agent", ["tokens", "calls"], [900, 5])

    again = await ff("budgets", "create", "agent", "--hard", "tokens=7")
    heading, first, second = (await ff("budgets", "list")).out.splitlines()
    shown = (await ff("budgets", "show", "agent")).out
    read = (await ff("budgets", "show", "agent", "--json")).json

    assert made.out == "budget agent is created\n"
    assert again.out == "budget agent exists already, with another definition\n"
    assert heading.split() == ["budget", "dimension", "used", "next_reset_at"]
    assert first.split()[:5] == ["agent", "calls", "5", "of", "5"]
    assert "100%" in first
    assert "in 24h" in first
    assert second.split()[:4] == ["tokens", "900", "of", "1,000"]
    assert "██████████████████░░ 90%" in second
    assert "agent: strict, spent" in shown
    assert " 800" in shown
    assert (read["usage"], read["budget_id"]) == (
        {"calls": 5, "tokens": 900},
        str(budget_id("agent")),
    )
    [listed] = (await ff("budgets", "--json")).json["budgets"]
    assert listed == read


async def test_limits_are_changed_and_a_period_begins(ff: Inside, db: Connection) -> None:
    await ff("budgets", "create", "agent", "--hard", "tokens=1000", "--json")
    await report_usage_admin(db, "agent", ["tokens"], [900], actor=user_at_host())

    changed = await ff("budgets", "limits", "agent", "--hard", "tokens=2000", "--mode", "warn")
    reset = (await ff("budgets", "reset", "agent", "--json")).json

    assert changed.out == "budget agent has the hard limits: tokens 2000\n"
    assert (reset["period_no"], reset["next_reset_at"]) == (1, None)
    assert "agent: warn" in (await ff("budgets", "show", str(budget_id("agent")))).out
    assert {each.actor for each in await actions(db)} == {user_at_host()}


async def test_what_cannot_be_is_said_in_one_line(ff: Inside) -> None:
    for arguments, why in (
        (("show", "none"), "budget none does not exist"),
        (("reset", "none"), "does not exist"),
        (("create", "x"), "--hard"),
        (("create", "x", "--hard", "tokens"), "must look like tokens=100000"),
        (("create", "x", "--hard", "t=1", "--hard", "t=2"), "twice"),
        (("create", "x", "--hard", f"t={2**63}"), "2^63-1"),
        (("limits", "x", "--every", "soon"), "--every"),
        (("limits", "x"), "name what changes, as --hard"),
        (("list", "--cursor", "x"), "cursor"),
    ):
        said = await ff("budgets", *arguments)
        assert said.code != 0
        assert why in one_line(said, said.code), arguments
