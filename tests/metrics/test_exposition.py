"""What a scrape gets: every metric by its name, with what was counted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from flowfabric import App, Client, Ctx, Retry
from flowfabric.counters import COUNTERS, READ_FROM_DATABASE, count_request
from flowfabric.metrics import CONTENT_TYPE, exposition

pytestmark = pytest.mark.timeout(60)

OF_THE_CONTRACT = """
ff_http_requests_total ff_http_request_duration_seconds ff_scanner_cycle_duration_seconds
ff_scanner_cycle_total ff_cancel_backlog_depth ff_claim_from_grant_duration_seconds
ff_lease_renewal_total ff_attempt_outcome_total ff_worker_at_capacity_total ff_budget_hit_total
ff_quota_hit_total ff_edge_group_policy_total ff_sibling_cancel_dispatched_total
ff_sibling_cancel_disposition_total ff_sibling_cancel_reconcile_total ff_shutdown_timeout_total
ff_executions ff_queue_age_seconds ff_claim_batch_size ff_db_pool_in_use ff_db_pool_wait_seconds
ff_tx_retry_total ff_notify_lag_seconds ff_stream_ops_in_flight ff_outbox_pending
ff_schedule_fires_total ff_schedule_lateness_seconds ff_build_info
"""


def samples(text: bytes | None = None) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The value of each sample, by its name and labels."""
    families: Iterable[Any] = text_string_to_metric_families((text or exposition()).decode())
    return {
        (each.name, frozenset(each.labels.items())): each.value
        for family in families
        for each in family.samples
    }


def of(found: dict[Any, float], name: str, **labels: str) -> float:
    return found.get((name, frozenset(labels.items())), 0.0)


def test_every_metric_of_the_contract_is_counted() -> None:
    assert {each.name for each in COUNTERS} >= set(OF_THE_CONTRACT.split())


def test_every_metric_is_exported_with_its_meaning() -> None:
    text = exposition().decode()

    for each in COUNTERS:
        assert f"# HELP {each.name} {each.meaning}\n" in text
    assert CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"
    assert "python_info" in text, "metrics of the application's own registry are there too"


async def test_outcomes_of_attempts_are_counted_by_lane(ff_dsn: str) -> None:
    app, tries = App(), list[int]()

    @app.task("good", lane="tills")
    async def good(ctx: Ctx) -> None: ...

    @app.task("bad", lane="tills", retry=Retry(max_retries=1, initial=0.01))
    async def bad(ctx: Ctx) -> None:
        raise KeyError("x")

    @app.task("slow", lane="tills", timeout=0.05)
    async def slow(ctx: Ctx) -> None:
        await ctx.sleep(0)
        tries.append(1)
        import asyncio

        await asyncio.sleep(30)

    before = samples()
    async with await Client.connect(ff_dsn) as client:
        await client.submit_many([good.call(), good.call(), bad.call(), slow.call()])
        await app.worker(dsn=ff_dsn).run_until_idle()
    after = samples()

    def more(name: str, **labels: str) -> float:
        return of(after, name, **labels) - of(before, name, **labels)

    outcomes = {
        outcome: more("ff_attempt_outcome_total", lane="tills", outcome=outcome)
        for outcome in ("ok", "error", "timeout", "retry", "cancelled")
    }
    assert outcomes == {"ok": 2, "error": 1, "timeout": 1, "retry": 1, "cancelled": 0}
    assert more("ff_claim_batch_size_sum") == 5
    assert more("ff_db_pool_wait_seconds_count") > 5
    assert of(after, "ff_db_pool_in_use") == 0, "every connection was given back"


def test_requests_have_few_label_values() -> None:
    before = samples()
    count_request("BREW", None, 404, 0.1)
    after = samples()

    labels = {"method": "OTHER", "path": "unknown", "status": "404"}
    assert of(after, "ff_http_requests_total", **labels) == (
        of(before, "ff_http_requests_total", **labels) + 1
    )


def test_levels_of_the_database_are_named_apart() -> None:
    assert {each.name for each in READ_FROM_DATABASE} == {
        "ff_executions",
        "ff_queue_age_seconds",
        "ff_cancel_backlog_depth",
        "ff_outbox_pending",
        "ff_schedules",
        "ff_notify_lag_seconds",
    }
