"""The pages for operators: their examples run, and their tables have the words of the code."""

from __future__ import annotations

import importlib
import re
from datetime import timedelta
from types import ModuleType

import pytest

from flowfabric import Client, ExecutionFailed, Handle, NotFound, PublicState
from flowfabric.client.open_engine import on_database
from flowfabric.db.rows import Connection
from flowfabric.engine.executions.reasons import ReasonCode
from flowfabric.engine.grants.reclaim_execution import GrantNotFound
from flowfabric.engine.grants.reclaimable import NotReclaimable
from flowfabric.engine.lifecycle.claim import Claimant, claim
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.errors import LaneNotAccepting
from flowfabric.states import AttemptType, LaneState
from flowfabric.testing import Clock
from tests import given
from tests.docs.conftest import Reader
from tests.docs.pages import block, quoted, rows, sections
from tests.engine.controls import actions

OPERATING = "docs/guides/operating.md"
STATES_PAGE = "docs/reference/states.md"
OPERATIONS = "docs/operations.md"


def timeless(text: str) -> str:
    """What was said, whenever, wherever and by whomever."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"\(\w+ ago\)", "(AGO)", text)
    return re.sub(r"[\w.-]+@[\w.-]+", "WHO", text)


# The guide to operating.


@pytest.fixture
def orders(reader: Reader) -> ModuleType:
    reader.opens(OPERATING)
    return importlib.import_module("orders")


@pytest.fixture
async def order(orders: ModuleType, client: Client) -> Handle[str]:
    return await client.submit(orders.charge.call("o-1"), tags={"shop.tenant": "acme"})


async def failed(orders: ModuleType, client: Client, number: int) -> list[Handle[str]]:
    """Orders that failed because the bank is closed."""
    handles = await client.submit_many([orders.charge.call(f"o-{n}") for n in range(number)])
    await orders.app.worker().run_until_idle()
    for handle in handles:
        with pytest.raises(ExecutionFailed, match="the bank is closed"):
            await handle.result(timeout=5)
    return handles


async def test_explain_says_what_the_page_shows(reader: Reader, order: Handle[str]) -> None:
    said = await reader.shell("explain", ID=str(order.execution_id))

    assert timeless(said).removeprefix("lane payments is paused\n") == timeless(
        block(OPERATING, "explain-says", "output").text
    )


async def test_explain_in_python(
    reader: Reader, client: Client, order: Handle[str], capsys: pytest.CaptureFixture[str]
) -> None:
    await reader.python("explain-python", client=client, execution_id=order.execution_id)

    first, second = capsys.readouterr().out.splitlines()
    assert first == "no live worker on lane 'payments' in namespace 'default'"
    assert second.startswith(f"no_worker {first} start one")


async def test_one_is_cancelled_and_then_all_of_a_search(
    reader: Reader, orders: ModuleType, client: Client, order: Handle[str]
) -> None:
    more = await client.submit(orders.charge.call("o-2"), tags={"shop.tenant": "acme"})
    other = await client.submit(orders.charge.call("o-3"))

    said = await reader.shell("cancel", ID=str(order.execution_id))

    assert "cancelled 1 execution\n" in said
    states = [await handle.state() for handle in (order, more, other)]
    assert states == [PublicState.CANCELLED, PublicState.CANCELLED, PublicState.WAITING]


async def test_what_failed_is_replayed_and_ends_well(
    reader: Reader, orders: ModuleType, client: Client
) -> None:
    first, *others = await failed(orders, client, 3)
    orders.bank["open"] = True

    said = await reader.shell("replay", ID=str(first.execution_id))
    await orders.app.worker().run_until_idle()

    assert "replayed 2 executions\n" in said
    assert await first.result(timeout=5) == "charged o-0"
    for number, handle in enumerate(others, start=1):
        assert await handle.result(timeout=5) == f"charged o-{number}"
    assert len(await first.attempts()) == 1


async def test_what_runs_is_taken_away(
    reader: Reader, client: Client, order: Handle[str], db: Connection
) -> None:
    holder = Claimant(worker_id="w", worker_instance_id="w-1", lanes=("payments",))
    [held] = await claim(db, holder, ttl=30)

    said = await reader.shell("revoke", ID=str(order.execution_id))

    assert "revoked from w-1" in said
    [again] = await claim(db, holder, ttl=30)
    assert again.lease.attempt_index == held.lease.attempt_index
    assert again.lease.lease_epoch > held.lease.lease_epoch


async def test_what_runs_is_completed_in_place_of_its_worker(
    reader: Reader, order: Handle[str], db: Connection
) -> None:
    holder = Claimant(worker_id="w", worker_instance_id="w-1", lanes=("payments",))
    await claim(db, holder, ttl=30)

    said = await reader.shell("override", ID=str(order.execution_id))

    assert f"completed {order.execution_id}" in said
    assert await order.state() == "completed"


async def test_an_execution_is_moved_held_back_and_let_go(
    reader: Reader, order: Handle[str], db: Connection
) -> None:
    await reader.shell("move", ID=str(order.execution_id))

    assert [action.event_type for action in await actions(db, order.execution_id)] == [
        "priority_changed",
        "blocked",
        "unblocked",
    ]
    assert (await order.describe()).priority == 100


async def test_lanes_are_paused_drained_and_made_active_again(
    reader: Reader, client: Client, order: Handle[str], db: Connection
) -> None:
    said = await reader.shell("lanes")

    [lane] = await client.admin.lanes()
    assert said.count("lane payments is ") == 4
    assert (lane.lane_state, lane.retention) == (LaneState.ACTIVE, timedelta(days=7))
    assert len(await actions(db)) == 5


async def test_history_and_attempts_are_shown(reader: Reader, order: Handle[str]) -> None:
    await order.cancel("no longer wanted")

    said = await reader.shell("history", ID=str(order.execution_id))

    assert "operator cancelled" in said
    assert "no longer wanted" in said


async def test_the_same_in_python(
    reader: Reader,
    client: Client,
    order: Handle[str],
    db: Connection,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await reader.python("admin", client=client, execution_id=order.execution_id)

    assert [action.event_type for action in await actions(db)] == [
        "lane_state_changed",
        "priority_changed",
        "lane_state_changed",
        "lane_retention_changed",
        "cancelled",
        "replayed",
    ]
    assert capsys.readouterr().out.count("\n") == 5  # with the submit and the completion event
    assert await order.state() is PublicState.WAITING


async def test_a_grant_is_given_verified_and_redeemed(
    reader: Reader, client: Client, order: Handle[str], db: Connection
) -> None:
    names = await reader.python("grant-key", client=client)
    names = await reader.python("grant", **names)
    anybody = Claimant(worker_id="w", worker_instance_id="w-1", lanes=("payments",))
    reserved = await claim(db, anybody, ttl=30)
    explanation = await order.explain()
    await reader.python("redeem", **names)

    assert names["grant"].execution_id == order.execution_id
    assert reserved == []
    assert explanation.reasons[0].why is ReasonCode.RESERVED
    assert await order.result(timeout=5) == "charged at the edge"


async def test_a_lost_execution_is_reclaimed_as_a_new_attempt(
    reader: Reader, client: Client, order: Handle[str], db: Connection, clock: Clock
) -> None:
    names = await reader.python("grant-key", client=client, execution_id=order.execution_id)
    anybody = Claimant(worker_id="w", worker_instance_id="w-1", lanes=("payments",))
    await claim(db, anybody, ttl=10)
    without = await on_database(client.engine).reclaim_execution(
        order.execution_id, worker_id="edge", worker_instance_id="edge-2", lease_ttl=30
    )
    await clock.advance(11)

    names = await reader.python("reclaim", **names)
    too_soon = await on_database(client.engine).issue_reclaim_grant(
        order.execution_id,
        lane_id="payments",
        worker_id="edge",
        worker_instance_id="edge-2",
        worker_capabilities=[],
        grant_ttl=5,
    )

    assert isinstance(without, GrantNotFound)
    assert names["again"].attempt_type is AttemptType.RECLAIM
    assert names["again"].lease.attempt_index == 1
    [lost] = await given.attempts(db, order.execution_id)
    assert lost["outcome"] == "interrupted_reclaimed"
    assert isinstance(too_soon, NotReclaimable)


# Operations.


async def made_on(client: Client, orders: ModuleType, *lanes: str) -> list[Handle[str]]:
    """A cancelled order on each lane."""
    handles = [await client.submit(orders.charge.call("o"), lane=lane) for lane in lanes]
    for handle in handles:
        await handle.cancel("no")
    return handles


async def test_a_lane_is_paused_for_a_deploy(
    reader: Reader, client: Client, orders: ModuleType
) -> None:
    await made_on(client, orders, "payments")
    reader.page = OPERATIONS

    said = await reader.shell("pause")

    assert "paused by" in said
    assert said.endswith("lane payments is active\n")


async def test_lanes_keep_and_forget(
    reader: Reader, client: Client, orders: ModuleType, clock: Clock
) -> None:
    old, _, _ = await made_on(client, orders, "payments", "audit", "default")
    await clock.advance(8 * 86400)
    reader.page = OPERATIONS

    kept = await reader.shell("keep")
    trimmed = await reader.shell("trim")

    assert re.findall("ended executions: (.*)", kept) == ["30d", "for ever", "1d (default)"]
    assert "deleted 1 " in trimmed
    with pytest.raises(NotFound):
        await old.state()


async def test_the_runbook_for_what_is_stuck_or_poisonous(
    reader: Reader, client: Client, orders: ModuleType, db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db, ttl=10)
    await clock.advance(11)
    reader.page = OPERATIONS

    said = await reader.shell("stuck", ID=str(lease.execution_id))
    await expire_leases(db, limit=1)
    await claim(db, given.WORKER, ttl=30)

    assert "the lease of worker" in said
    assert "lease acquired" in said
    assert [tuple(row) for row in await reader.sql("poison")] == [(str(lease.execution_id), 1)]


async def test_keys_are_made_and_what_was_done_is_kept(
    reader: Reader, orders: ModuleType, client: Client
) -> None:
    reader.page = OPERATIONS

    said = await reader.shell("keys")

    assert "seeded k1\n" in said
    [action] = await reader.sql("audit")
    assert (action["actor"], action["event_type"]) == (client.identity, "key_rotated")


# Tables.


def test_every_reason_is_explained() -> None:
    listed = rows(sections(OPERATING, 2)["Why does it not run?"])

    assert [quoted(why)[0] for why, *_ in listed] == [why.value for why in ReasonCode]


async def test_a_lane_in_each_state_does_what_is_written(client: Client, db: Connection) -> None:
    listed = list(rows(sections(STATES_PAGE, 2)["Lane states"]))
    await given.created(db, lane_id="default")

    assert [quoted(state)[0] for state, *_ in listed] == [state.value for state in LaneState]
    for state, takes, starts, _ in listed:
        await client.engine.set_lane_state("default", quoted(state)[0])
        taken = True
        try:
            await client.engine.create_execution([given.new()])
        except LaneNotAccepting:
            taken = False
        started = await claim(db, given.WORKER, ttl=30)
        assert (taken, bool(started)) == (takes == "yes", starts == "yes"), state
