"""Every act of the route table, done by a person: open its dialog, fill it in, send it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import pytest
from playwright.async_api import Browser, Locator, Page, expect

from bench.flow_graphs import busy_flow
from flowfabric import Engine
from flowfabric.dashboard.routes import ROUTES
from flowfabric.dashboard.table import Act
from flowfabric.db.rows import Connection
from flowfabric.engine.events.operator_events import OperatorEvent
from flowfabric.states import PublicState, Role
from tests import given
from tests.browser.conftest import Heard, Served, context_of
from tests.dashboard.test_reviews import stopped
from tests.worker.facts import eventually

WHY: Final = "because the plan says so"


class Done(msgspec.Struct, frozen=True):
    """An act: its row of the table, the page with its link, the words of the link, and more."""

    row: str
    page: str
    link: str
    button: str
    says: str
    """What the toast, or the page after it, has to say."""
    fields: Mapping[str, str] = {}


X: Final = "/executions/{execution_id}"
S: Final = "/schedules/{name}"
L: Final = "/lanes/{lane}"
PARTS: Final[Mapping[str, tuple[Done, ...]]] = {
    "executions": (
        Done(f"{X}/tag", "waiting", "Set tag", "Set tag", "gold", {"key": "a.b", "value": "gold"}),
        Done(f"{X}/priority", "waiting", "Change priority", "", "is 7", {"priority": "7"}),
        Done(f"{X}/block", "waiting", "Block", "Block execution", "is held back"),
        Done(f"{X}/unblock", "waiting", "Unblock", "Unblock execution", "claimable again"),
        Done(f"{X}/cancel", "waiting", "Cancel", "Cancel execution", "was cancelled"),
        Done(f"{X}/replay", "failed", "Replay", "Replay execution", "runs again"),
        Done(f"{X}/signal", "suspended", "Send signal", "", "arrived", {"name": "approved"}),
        Done(f"{X}/resume", "approval", "Resume", "Resume execution", "goes on"),
        Done(f"{X}/revoke", "active", "Revoke lease", "Revoke lease", "was revoked"),
        Done(
            "/executions/new",
            "/executions",
            "New execution",
            "Submit execution",
            "submitted",
            {"kind": "build", "input": '"abc"'},
        ),
    ),
    "lanes and workers": (
        Done(f"{L}/pause", "/lanes/orders", "Pause", "Pause lane", "orders is paused"),
        Done(f"{L}/drain", "/lanes/orders", "Drain", "Drain lane", "orders is draining"),
        Done(f"{L}/disable", "/lanes/orders", "Disable", "Disable lane", "orders is disabled"),
        Done(f"{L}/resume", "/lanes/orders", "Resume", "Resume lane", "orders is active"),
        Done(
            f"{L}/retention",
            "/lanes/orders",
            "Retention",
            "Change retention",
            "was changed",
            {"retention": "12h"},
        ),
        Done(
            f"{L}/trim",
            "/lanes/orders",
            "Delete old",
            "Delete executions",
            "were deleted",
            {"older": "7d"},
        ),
        Done("/workers/{instance}/revoke-all", "worker", "Revoke all", "Revoke leases", "revoked"),
        Done(
            "/workers/{instance}/dead", "worker", "Mark as dead", "Mark as dead", "not registered"
        ),
    ),
    "schedules": (
        Done(
            "/schedules/new",
            "/schedules",
            "New schedule",
            "Make schedule",
            "hourly",
            {"name": "hourly", "kind": "build", "cron": "0 * * * *"},
        ),
        Done(
            f"{S}/edit",
            "/schedules/hourly",
            "Edit",
            "Change schedule",
            "was changed",
            {"cron": "*/5 * * * *"},
        ),
        Done(f"{S}/pause", "/schedules/hourly", "Pause", "Pause schedule", "is paused"),
        Done(f"{S}/resume", "/schedules/hourly", "Resume", "Resume schedule", "fires again"),
        Done(f"{S}/trigger", "/schedules/hourly", "Trigger now", "Trigger now", "was triggered"),
        Done(
            f"{S}/backfill",
            "/schedules/hourly",
            "Backfill",
            "Backfill",
            "were submitted",
            {"start": "2026-01-01T00:00", "end": "2026-01-01T00:10"},
        ),
        Done(f"{S}/delete", "/schedules/hourly", "Delete", "Delete schedule", "was deleted"),
    ),
    "budgets, keys and tokens": (
        Done(
            "/budgets/new",
            "/budgets",
            "New budget",
            "Make budget",
            "The budget gpu was made",
            {"name": "gpu"},
        ),
        Done(
            "/budgets/{budget_id}/limits",
            "budget",
            "Change limits",
            "",
            "were changed",
            {"hard.tokens": "5000"},
        ),
        Done("/budgets/{budget_id}/reset", "budget", "Reset", "Reset budget", "was reset"),
        Done(
            "/quotas/new",
            "/budgets",
            "New limit",
            "Make limit",
            "The limit few was made",
            {"name": "few"},
        ),
        Done(
            "/quotas/{quota_id}/limits",
            "quota",
            "Change limit",
            "",
            "allows 3 at once",
            {"concurrent": "3"},
        ),
        Done(
            "/keys/rotate",
            "/keys",
            "Rotate signing key",
            "Rotate key",
            "k9 signs from now on",
            {"kid": "k9"},
        ),
        Done("/tokens/new", "/keys", "New token", "Make token", "ff_", {"label": "root"}),
        Done("/tokens/new", "/keys", "New token", "Make token", "ff_", {"label": "robot"}),
        Done("/tokens/{token_id}/revoke", "/keys", "Revoke", "Revoke token", "robot is revoked"),
    ),
    "filters and flows": (
        Done(
            "/queries/save",
            "/executions?kind=build",
            "Save this filter",
            "",
            "saved as builds",
            {"name": "builds"},
        ),
        Done("/queries/{query_id}/forget", "/executions", "Forget builds", "", "is forgotten"),
        Done(
            "/flows/{flow_id}/tag",
            "flow",
            "Tag",
            "Set tag",
            "a.b was set",
            {"key": "a.b", "value": "gold"},
        ),
        Done("/flows/{flow_id}/replay", "flow", "Replay failed", "Replay flow", "runs again"),
        Done("/flows/{flow_id}/cancel", "flow", "Cancel flow", "Cancel flow", "is cancelled"),
    ),
}
ELSEWHERE: Final = {
    "/executions/bulk",
    "/bulk/{bulk_id}/stop",
    "/approvals/{execution_id}/{waitpoint_id}/answer",
    "/approvals/{execution_id}/{waitpoint_id}/link",
    "/approvals/resume",
    "/sessions/{session_id}/close",
    "/logout",
    "/prefs",
}
"""Acts with a test of their own, below or in another module."""


async def opened(page: Page, link: str) -> Locator:
    """The dialog of the act that this link of the page opens."""
    wanted = page.locator("main").get_by_role("link", name=link, exact=True).first
    if not await wanted.is_visible():
        await page.locator("#more-acts summary").click()
    await wanted.click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.locator("form")).to_be_visible()
    return dialog


async def do(page: Page, url: str, done: Done) -> None:
    """Do it as a person does, by mouse and keyboard."""
    await page.goto(url)
    dialog = await opened(page, done.link)
    for name, value in done.fields.items():
        await dialog.locator(f"[name='{name}']").fill(value)
    reason = dialog.get_by_role("textbox", name="Reason")
    if await reason.count():
        await reason.fill(WHY)
    button = dialog.locator("button.primary, button.danger")
    if done.button:
        await expect(button).to_have_text(done.button)
    await button.click()
    if done.row == "/tokens/new":
        await expect(dialog.locator("[data-secret]")).to_contain_text(done.says)
        return
    await expect(page.locator("#toasts")).to_contain_text(done.says)
    await expect(dialog).to_have_count(0)


def test_every_act_of_the_route_table_is_done_here() -> None:
    rows = {each.path for each in ROUTES if isinstance(each, Act)}
    done = {each.row for part in PARTS.values() for each in part}
    assert done | ELSEWHERE == rows
    assert not done & ELSEWHERE


@pytest.mark.parametrize("part", PARTS)
async def test_acts_are_done_in_dialogs_without_leaving_the_page(
    part: str, page: Page, served: Served
) -> None:
    busy = served.busy
    places = {
        "worker": f"/workers/{busy.worker}",
        "budget": f"/budgets/{busy.budget}",
        "quota": f"/quotas/{busy.quota}",
    }
    if any(each.page == "flow" for each in PARTS[part]):
        places["flow"] = f"/flows/{await busy_flow(served.engine, images=6)}"
    for each in PARTS[part]:
        path = each.page if each.page.startswith("/") else places.get(each.page)
        await do(page, served.url + (path or busy.path(each.page)), each)

    found = await served.engine.list_events("operator", limit=100)
    reasons = {each.reason for each in found.events if isinstance(each, OperatorEvent)}
    if part != "filters and flows":
        assert WHY in reasons
    state = await served.engine.read_execution_state(busy.waiting)
    assert (state is PublicState.CANCELLED) == (part == "executions")


async def test_an_approval_is_answered_by_two_people_and_a_stale_card_says_so(
    page: Page, served: Served, heard: Heard
) -> None:
    await page.goto(served.url + "/approvals")
    card = page.locator("article.approval")
    await expect(page.locator("#nav [data-waiting]")).to_have_text("1")
    dialog = await opened(page, "Approve")
    await expect(dialog.get_by_role("textbox", name="Reason")).to_be_focused()
    await dialog.get_by_label("percent").fill("50")
    await dialog.get_by_role("textbox", name="Reason").fill("tested for a week")
    await dialog.get_by_role("button", name="Approve").click()
    await expect(page.locator("#toasts")).to_contain_text("others are needed too")
    await expect(card.locator(".given")).to_contain_text("approved")

    # The same person again is told so before it is sent; meanwhile another one decides.
    dialog = await opened(page, "Approve")
    await expect(dialog.locator(".note")).to_contain_text("You have answered approved already")
    await served.engine.deliver_approval_signal(
        served.busy.approval,
        served.busy.waitpoint,
        "approved",
        lane_id="orders",
        idempotency_suffix="bob",
        operator_identity="bob",
    )

    async def decided() -> bool:
        state = await served.engine.read_execution_state(served.busy.approval)
        return state is PublicState.COMPLETED

    await eventually(decided, within=30)
    await dialog.get_by_role("textbox", name="Reason").fill("once more")
    await dialog.get_by_role("button", name="Approve").click()
    await expect(page.locator(".toast.bad")).to_contain_text("bob answered approved")
    await expect(page.locator(".toast.bad")).to_contain_text("(not_found, req_")
    await page.keyboard.press("Escape")
    await expect(card).to_have_count(0)
    await expect(page.locator("#inbox")).to_contain_text("Nobody is waiting for you")
    await page.get_by_role("link", name="Answered").click()
    await expect(page.locator("table.closed")).to_contain_text("bob")
    heard.complaints[:] = [each for each in heard.complaints if "404" not in each]


async def test_a_change_of_many_is_stopped(
    ff_engine: Engine, address: str, bare_page: Page
) -> None:
    made = await ff_engine.create_execution([given.new() for _ in range(3)])
    ids = [each.execution_id for each in made]  # pyright: ignore[reportAttributeAccessIssue]
    bulk = await ff_engine.start_bulk_action(
        "cancel", executions=ids, reason="an audit", actor="bob", namespace="default"
    )
    await bare_page.goto(f"{address}/bulk/{bulk.bulk_id}")
    await expect(bare_page.locator("#bulk")).to_contain_text("0 of 3 done")
    dialog = await opened(bare_page, "Stop")
    await dialog.get_by_role("textbox", name="Reason").fill(WHY)
    await dialog.locator("button.danger, button.primary").click()
    await expect(bare_page.locator("#toasts")).to_contain_text("stopped")
    assert await ff_engine.read_execution_state(ids[0]) is PublicState.WAITING


async def test_what_was_stopped_for_review_goes_on_together(
    ff_engine: Engine, db: Connection, address: str, bare_page: Page
) -> None:
    ids = [await stopped(db) for _ in range(2)]
    await bare_page.goto(f"{address}/approvals")
    dialog = await opened(bare_page, "Resume all")
    await expect(dialog).to_contain_text("Resume 2 executions of ship?")
    await dialog.get_by_role("textbox", name="Reason").fill(WHY)
    await dialog.get_by_role("button", name="Resume executions").click()
    await expect(bare_page.locator("#toasts")).to_contain_text("2 go on.")
    await expect(bare_page.locator("#inbox")).not_to_contain_text("Stopped for review")
    await bare_page.goto(f"{address}/executions/{ids[0]}")
    await expect(bare_page.locator(".story")).to_contain_text(WHY)


async def test_another_session_is_ended_from_the_settings(
    chromium: Browser, served: Served, heard: Heard
) -> None:
    token = (await served.engine.create_token("ann", role=Role.OPERATOR)).token
    served.application.services.authenticator._open = None  # its ten seconds are over
    pages: list[Page] = []
    for _ in range(2):
        context = await context_of(chromium, heard)
        pages.append(await context.new_page())
        await pages[-1].goto(served.url + "/settings")
        await pages[-1].get_by_label("API token").fill(token)
        await pages[-1].get_by_role("button", name="Log in").click()
        await expect(pages[-1].locator("h1")).to_have_text("Settings")
    here, there = pages
    await here.reload()
    dialog = await opened(here, "End")
    await dialog.locator("button.primary, button.danger").click()
    await expect(here.locator("#toasts")).to_contain_text("The session has ended")
    await there.goto(served.url + "/lanes")
    await expect(there.locator("h1")).to_have_text("Log in")
    for each in pages:
        await each.context.close()
    assert heard.complaints == []
