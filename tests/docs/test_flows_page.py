"""The guide to flows: its examples run and do what the page says."""

from __future__ import annotations

import importlib
import re
from types import ModuleType

import pytest

from flowfabric import (
    AnyOf,
    App,
    Client,
    Ctx,
    Fail,
    FlowCancelled,
    FlowHandle,
    IdempotencyConflict,
    PublicState,
)
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import Claimant, claim
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.errors import FlowAlreadyStarted
from flowfabric.states import CancellationPolicy, DerivedFlowState
from tests import given
from tests.docs.conftest import Reader
from tests.docs.pages import block, quoted, rows, sections

FLOWS = "docs/guides/flows.md"
MEMBERS = ["build", "deploy", "push", "test-api", "test-browser", "test-unit"]


@pytest.fixture
def shop(reader: Reader) -> ModuleType:
    reader.opens(FLOWS)
    return importlib.import_module("shop_release")


async def states(handle: FlowHandle) -> dict[str, str]:
    return {member.name or "": member.public_state.value for member in await handle.members()}


async def built(shop: ModuleType, client: Client) -> FlowHandle:
    """A release whose first member has succeeded, and the next one waits for a worker."""
    handle = await client.start(shop.release("4f2a9c1"), idempotency_key="release 4f2a9c1")
    builder = Claimant(worker_id="w", worker_instance_id="w-1", lanes=("default",))
    [task] = await client.engine.claim(builder, ttl=30)
    await client.engine.complete([Completion(task.lease, b'"shop:4f2a9c1"')])
    await client.engine.dispatch()
    return handle


# Start and failures.


async def test_a_release_runs_and_does_not_wait_for_the_slowest_suite(
    reader: Reader, shop: ModuleType, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shop.app.worker(lease_ttl=3):
        names = await reader.python("start-flow", client=client, release=shop.release)

    live, results = capsys.readouterr().out.splitlines()
    assert live == "4f2a9c1 is live"
    assert results == str([name for name in MEMBERS if name != "test-browser"])
    assert names["results"]["push"] == "pushed shop:4f2a9c1"
    assert await names["handle"].state() is DerivedFlowState.COMPLETED
    browser = await (await names["handle"].member("test-browser")).describe()
    assert browser.cancellation_reason == "sibling_quorum_satisfied"


async def test_results_are_passed_on_and_have_their_types(
    reader: Reader, shop: ModuleType, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = importlib.import_module("shop_orders")
    names = {"app": orders.app, "price": orders.price, "charge": orders.charge}

    async with orders.app.worker():
        await reader.python("typed-results", client=client, **names)
        sales = await (await client.start(orders.sales(["tea", "salt"]))).result(timeout=20)
    await reader.python("feed-mismatch", **names)

    typed, mismatch = capsys.readouterr().out.splitlines()
    assert typed == "Receipt(order='tea', cents=300) True"
    assert mismatch == block(FLOWS, "feed-refused", "output").text.strip()
    assert sales["report"] == "700 cents"


async def test_a_flow_starts_once_and_may_be_started_again_with_a_key(
    shop: ModuleType, client: Client
) -> None:
    flow = shop.release("4f2a9c1")
    await client.start(flow)

    with pytest.raises(FlowAlreadyStarted):
        await client.start(flow)

    assert (await client.start(flow, idempotency_key="k")).created


async def test_the_same_key_finds_the_first_flow(shop: ModuleType, client: Client) -> None:
    first = await client.start(shop.release("4f2a9c1"), idempotency_key="k")
    again = await client.start(shop.release("4f2a9c1"), idempotency_key="k")
    with pytest.raises(IdempotencyConflict):
        await client.start(shop.release("other"), idempotency_key="k")

    assert (first.flow_id, first.created) == (again.flow_id, True)
    assert not again.created


async def test_what_failed_is_replayed_from_the_top(
    reader: Reader, shop: ModuleType, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    given_names = {"client": client, "release": shop.release, "registry": shop.registry}
    async with shop.app.worker(lease_ttl=3):
        names = await reader.python("failed-flow", **given_names)
        said = capsys.readouterr().out
        ended = await states(names["handle"])
        await reader.python("replay-flow", **names)

    assert said.startswith("['push: the registry is closed']\n")
    assert "deploy skipped dependency_impossible\n" in said
    assert ended == {
        name: {"build": "completed", "push": "failed"}.get(name, "skipped") for name in MEMBERS
    }
    assert capsys.readouterr().out == "['push'] 4\n77ab012 is live\n"


async def test_a_failure_that_is_made_up_for_does_not_count(
    reader: Reader, shop: ModuleType, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    app = App()

    @app.task("ask")
    async def ask(ctx: Ctx, bank: str) -> str:
        if bank == "north":
            raise Fail("refused", retryable=False)
        return "4 %"

    @app.task("accept")
    async def accept(ctx: Ctx) -> str:
        return "accepted"

    async with app.worker():
        names = await reader.python("any-of", client=client, app=app, ask=ask, accept=accept)

    assert sorted(eval(capsys.readouterr().out).items()) == [  # noqa: S307
        ("accept", "accepted"),
        ("south", "4 %"),
    ]
    assert await names["handle"].state() is DerivedFlowState.COMPLETED


async def test_an_arm_that_lost_is_cancelled_and_not_waited_for(
    reader: Reader, shop: ModuleType, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    app, field = App(), App()

    @app.task("ask")
    async def ask(ctx: Ctx, bank: str) -> str:
        return "4 %"

    @app.task("accept")
    async def accept(ctx: Ctx) -> str:
        return "accepted"

    @field.task("visit", lane="field")
    async def visit(ctx: Ctx, bank: str) -> None: ...

    @field.task("scan", lane="field")
    async def scan(ctx: Ctx) -> None: ...

    given_names = {"ask": ask, "accept": accept, "visit": visit, "scan": scan, "AnyOf": AnyOf}
    async with app.worker():
        names = await reader.python("arms", client=client, app=app, **given_names)

    results, *members = capsys.readouterr().out.splitlines()
    assert eval(results) == {"online": "4 %", "accept": "accepted"}  # noqa: S307
    assert sorted(members) == [
        "accept completed None",
        "meeting cancelled sibling_quorum_satisfied",
        "online completed None",
        "paper cancelled sibling_quorum_satisfied",
    ]
    assert await names["handle"].state() is DerivedFlowState.COMPLETED


# Look, cancel.


def leaves(text: str) -> list[str]:
    """The lines of a tree in any order; below which of its upstreams a member stands is open."""
    plain = [re.sub(r"^[\s│├└─]+", "", line) for line in text.splitlines()]
    return sorted(re.sub(r" \(also after .*\)", " (also)", line) for line in plain)


async def test_a_flow_is_shown_as_the_page_shows_it(
    reader: Reader, shop: ModuleType, client: Client
) -> None:
    handle = await built(shop, client)

    said = await reader.shell("flows-look", FLOW=str(handle.flow_id))

    shown = block(FLOWS, "flow-shown", "output").text
    assert set(leaves(shown)) <= set(leaves(said))
    assert said.count("graph LR") == said.count("digraph flow {") == 1
    assert f"{handle.flow_id}  release" in said


async def test_what_a_member_waits_for_is_explained(
    reader: Reader, shop: ModuleType, client: Client
) -> None:
    handle = await built(shop, client)
    suite = await handle.member("test-unit")

    said = await reader.shell("flow-explain", ID=str(suite.execution_id))

    def timeless(text: str) -> str:
        return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC \(\w+ ago\)", "THEN", text)

    assert timeless(said) == timeless(block(FLOWS, "flow-explained", "output").text)


async def test_a_flow_is_cancelled_from_a_shell(
    reader: Reader, shop: ModuleType, client: Client
) -> None:
    handle = await built(shop, client)

    await reader.shell("flows-cancel", FLOW=str(handle.flow_id))

    with pytest.raises(FlowCancelled, match="the customer called"):
        await handle.result(timeout=5)


def test_every_policy_and_every_state_is_listed() -> None:
    policies = [quoted(cells[0])[0] for cells in rows(sections(FLOWS, 2)["Cancel"])]
    listed = [quoted(cells[0])[0] for cells in rows(sections(FLOWS, 2)["The state of a flow"])]

    assert sorted(policies) == sorted(policy.value for policy in CancellationPolicy)
    assert listed == [state.value for state in DerivedFlowState]


@pytest.mark.parametrize("policy", list(CancellationPolicy))
async def test_a_policy_does_what_is_written(
    db: Connection, shop: ModuleType, client: Client, policy: CancellationPolicy
) -> None:
    flow = shop.app.flow("pair")
    runs = flow.add(shop.deploy.call("a"), name="runs")
    flow.add(shop.deploy.call("b"), name="waits").after(runs)
    handle = await client.start(flow)
    await claim(db, given.WORKER, ttl=30)

    await handle.cancel("no", policy=policy)

    [written] = [
        cells for cells in rows(sections(FLOWS, 2)["Cancel"]) if policy.value in quoted(cells[0])
    ]
    ended = {name: state == "cancelled" for name, state in (await states(handle)).items()}
    assert ended == {
        "waits": written[1] == "are cancelled",
        "runs": written[2].startswith("are cancelled"),
    }


# Children.


async def test_children_are_gathered_raced_and_left_alone(
    reader: Reader, shop: ModuleType, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    crawler = importlib.import_module("crawler")

    async with crawler.app.worker(lease_ttl=3):
        await reader.python("children", client=client, crawl=crawler.crawl, try_all=crawler.try_all)

    first, second = capsys.readouterr().out.splitlines()
    assert first == "['38 bytes', '2', 'late: 38 bytes']"
    assert second == "['19', 'only the web']"
    [tidied] = (await client.search(kind="tidy")).executions
    assert tidied.public_state is PublicState.COMPLETED
