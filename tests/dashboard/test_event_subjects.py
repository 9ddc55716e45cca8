"""What an event of an operator is about has a link to its page."""

from __future__ import annotations

from flowfabric import Engine, QuotaLimits
from flowfabric.budgets import budget_id
from flowfabric.dashboard.pages.event_subjects import subject
from flowfabric.server.app import Application
from flowfabric.states import LaneState
from tests.all_cases import all_cases
from tests.dashboard.conftest import browser


async def test_an_event_of_a_lane_a_budget_or_a_limit_links_to_it(
    served: Application, ff_engine: Engine
) -> None:
    await ff_engine.register_lanes(["pay roll"], registered_by="ann")
    await ff_engine.set_lane_state("pay roll", LaneState.PAUSED, actor="ann", reason="month end")
    await ff_engine.create_budget(
        "acme", dimensions=["t"], hard_limits=[1], soft_limits=[0], scope_type="tenant"
    )
    limit = await ff_engine.create_quota_policy("bank", QuotaLimits(max_concurrent=1))

    async with browser(served) as admin:
        page = (await admin.get("/events")).text
        found = [
            (await admin.get(path)).status_code
            for path in (
                "/lanes/pay%20roll",
                f"/budgets/{budget_id('acme')}",
                f"/quotas/{limit.quota_policy_id}",
            )
            if f'href="/ui{path}"' in page
        ]

    assert found == [200, 200, 200]


@all_cases(
    ("details", "about"),
    [
        ({"schedule": "nightly", "namespace": "a"}, ("/schedules/nightly", "nightly")),
        ({"worker_instance_id": "w-1"}, ("/workers/w-1", "w-1")),
        ({"token_id": "t", "label": "ci"}, ("/keys", "ci")),
        ({"budget_id": "javascript:alert(1)"}, None),
        ({}, None),
    ],
)
def test_what_details_name(details: dict[str, str], about: tuple[str, str] | None) -> None:
    assert subject(details) == about
