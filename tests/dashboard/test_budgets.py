"""Budgets and limits: what is used, by whom, who waits, and what a change would let go."""

from __future__ import annotations

from flowfabric import Engine, QuotaLimits
from flowfabric.budgets import budget_id
from flowfabric.db.rows import Connection
from flowfabric.engine.budgets.sample_budget_usage import sample_budget_usage
from flowfabric.engine.events.operator_events import OperatorEvent
from flowfabric.policy import ExecutionPolicy
from flowfabric.server.app import Application
from flowfabric.states import Role
from tests import given
from tests.dashboard.conftest import Person, browser, form_token, send


async def test_a_budget_is_made_spent_raised_and_reset(
    served: Application, ff_engine: Engine, person: Person
) -> None:
    ann = await person(Role.OPERATOR, label="ann")
    new = {
        "name": "acme",
        "scope_type": "tenant",
        "limits": "tokens 100 80\n\neuros 0 5",
        "reset": "1d",
        "mode": "strict",
        "reason": "a new tenant",
    }
    for wrong in ({"limits": "tokens"}, {"limits": " "}, {"reset": "soon"}, {"name": " "}):
        await send(ann, "/budgets/new", {**new, **wrong}, 422)
    await send(ann, "/budgets/new", new)
    path = f"/budgets/{budget_id('acme')}"
    policy = ExecutionPolicy(budget_ids=("acme",))
    [made] = await ff_engine.create_execution([given.new(execution_kind="a", policy=policy)])
    await ff_engine.record_spend("acme", made.execution_id, {"tokens": 100, "euros": 7})
    assert await ff_engine.claim(given.WORKER, ttl=30) == []

    page = (await ann.get(path)).text
    assert "100 of 100" in page
    assert page.count(f"/executions/{made.execution_id.partition_key}.") == 3  # held, spent twice
    assert "1 held back" in (await ann.get("/budgets")).text
    token = await form_token(ann, f"{path}/limits")
    limits = {"hard.tokens": "100", "soft.tokens": "0", "hard.euros": "0", "soft.euros": "0"}
    for hard, said in (("100", "tokens stays used up"), ("200", "it lets 1 executions go")):
        data = {"_csrf": token, "_preview": "yes", **limits, "hard.tokens": hard}
        assert said in (await ann.post(f"{path}/limits", data=data)).text
    await send(ann, f"{path}/limits", {**limits, "hard.tokens": "200", "reason": "they paid"})
    await ff_engine.create_execution([given.new(execution_kind="a", policy=policy)])
    assert len(await ff_engine.claim(given.WORKER, ttl=30)) == 1
    page = (await ann.get(path)).text
    assert "1 running, 1 waiting for a worker" in page
    assert f'href="/ui/workers/{given.WORKER.worker_instance_id}"' in page
    await send(ann, f"{path}/reset", {"reason": "new month"})
    assert (await ff_engine.get_budget_status("acme")).usage["tokens"] == 0
    events = (await ff_engine.list_events("operator", limit=5)).events
    assert [each.reason for each in events if isinstance(each, OperatorEvent)][:2] == [
        "new month", "they paid",
    ]  # fmt: skip
    local = await person(Role.OPERATOR, label="local one", namespaces=["default"])
    assert (await local.get(path)).status_code == 404
    assert "acme" not in (await local.get("/budgets")).text


async def test_the_page_of_a_budget_draws_its_use_over_time(
    served: Application, ff_engine: Engine, db: Connection
) -> None:
    await ff_engine.create_budget(
        "acme", dimensions=["tokens", "euros"], hard_limits=[900, 10**9], soft_limits=[0, 0]
    )
    await ff_engine.report_usage_admin("acme", ["tokens", "euros"], [250, 3])
    await sample_budget_usage(db, 10)
    async with browser(served) as admin:
        page = (await admin.get(f"/budgets/{budget_id('acme')}?window=1h")).text

    assert 'aria-label="tokens used in the last 1 h"' in page
    assert "euros over time" in page
    assert page.count('class="line f-red"') == 1, "a limit far above what was used is not drawn"
    assert page.count("as table") == 2
    assert '<td class="num">250</td><td class="num">900</td>' in page


async def test_a_limit_is_made_looked_at_and_changed_within_its_namespace(
    served: Application, ff_engine: Engine, person: Person
) -> None:
    async with browser(served) as admin:
        new = {"name": "bank", "namespace": "default", "concurrent": "1", "starts": "0"}
        new["reason"] = "the bank asked"
        await send(admin, "/quotas/new", {**new, "starts": "5", "window": ""}, 400)
        await send(admin, "/quotas/new", {**new, "window": "60s"})
        [found] = await ff_engine.list_quota_policies(namespace="default")
        path = f"/quotas/{found.quota_policy_id}"
        await ff_engine.create_execution(
            [given.new(quota_policy_id=found.quota_policy_id, limit_key="acme") for _ in range(3)]
        )
        [held] = await ff_engine.claim(given.WORKER, ttl=30, limit=3)
        page = (await admin.get(path)).text
        assert "1 of 1" in page
        assert str(held.lease.execution_id.uuid) in page
        assert 'for <time datetime="' in page, "how long the slot is held"
        listed = (await admin.get("/budgets")).text
        assert "1 at once" in listed
        assert '1 <span class="faint">of 1</span>' in listed
    ann = await person(Role.OPERATOR, label="ann", namespaces=["default"])
    bob = await person(Role.OPERATOR, label="bob", namespaces=["other"])
    change = {"concurrent": "2", "starts": "10", "window": "1m", "reason": "faster bank"}
    await send(ann, f"{path}/limits", change)
    changed = await ff_engine.get_quota_policy(found.quota_policy_id)
    assert changed is not None
    assert changed.limits == QuotaLimits(
        max_concurrent=2, max_requests_per_window=10, window_seconds=changed.limits.window_seconds
    )
    assert {(await bob.get(each)).status_code for each in (path, f"{path}/limits")} == {404}
