"""Reports of usage: limits, breaches, keys, and the ledger of executions."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID, uuid4

import pytest

from flowfabric.budgets import budget_id
from flowfabric.counters import BUDGET_BREACHES
from flowfabric.db.rows import Connection
from flowfabric.engine import (
    BudgetReleased,
    Engine,
    ExecutionId,
    HardBreach,
    Lease,
    SoftBreach,
    UsageAlreadyApplied,
    UsageCounted,
)
from flowfabric.engine.budgets.report_usage_admin import report_usage_admin
from flowfabric.errors import NotFound, ValidationError
from flowfabric.ids import uuid_partition
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Action, Another, actions

OK, AGAIN = UsageCounted(), UsageAlreadyApplied()
DAY = 86_400


async def make(engine: Engine, name: str = "b", **limits: Any) -> None:
    """A budget: 100 tokens and 10 calls, soft limits of 50 tokens."""
    limits = {
        "dimensions": ["tokens", "calls"],
        "hard_limits": [100, 10],
        "soft_limits": [50, 0],
    } | limits
    await engine.create_budget(name, **limits)


async def usage(engine: Engine, name: str = "b") -> dict[str, int]:
    return {
        dimension: amount
        for dimension, amount in (await engine.read_budget_usage_and_limits(name)).usage.items()
        if amount
    }


async def report(engine: Engine, amounts: dict[str, int], key: str = "", name: str = "b") -> Any:
    return await engine.report_usage_admin(
        name, list(amounts), list(amounts.values()), dedup_key=key
    )


async def test_reports_are_counted_up_to_the_limit_and_refused_beyond(engine: Engine) -> None:
    await make(engine)

    answers = [
        await report(engine, amounts)
        for amounts in (
            {},
            {"tokens": 50},
            {"tokens": 1},
            {"tokens": 49, "calls": 10},
            {"tokens": 0},
            {"calls": 1, "tokens": 1},
            {"other": 7, "tokens": 1},
            {"other": 7},
        )
    ]

    assert answers == [
        OK,
        OK,
        SoftBreach(dimension="tokens", current_usage=51, soft_limit=50),
        SoftBreach(dimension="tokens", current_usage=100, soft_limit=50),
        SoftBreach(dimension="tokens", current_usage=100, soft_limit=50),
        HardBreach(dimension="calls", current_usage=10, hard_limit=10),
        HardBreach(dimension="tokens", current_usage=100, hard_limit=100),
        OK,
    ]
    assert await usage(engine) == {"tokens": 100, "calls": 10, "other": 7}
    status = await engine.get_budget_status("b")
    assert (status.breach_count, status.soft_breach_count) == (2, 3)
    assert status.last_breach_dim == "tokens"
    assert status.last_breach_at is not None
    assert status.spent


async def test_of_several_dimensions_over_a_limit_the_first_by_name_is_told(
    engine: Engine,
) -> None:
    names = ["b", "a", "B"]
    await make(engine, dimensions=names, hard_limits=[10] * 3, soft_limits=[1] * 3)

    soft = await report(engine, dict.fromkeys(names, 2))
    hard = await report(engine, {"b": 9, "a": 9, "B": 1})

    assert soft == SoftBreach(dimension="B", current_usage=2, soft_limit=1)
    assert hard == HardBreach(dimension="a", current_usage=2, hard_limit=10)
    status = await engine.get_budget_status("b")
    assert (status.breach_count, status.soft_breach_count) == (1, 1), "once for a report"


async def test_a_budget_that_warns_counts_beyond_its_hard_limit(engine: Engine) -> None:
    await make(engine, enforcement_mode="warn")

    assert await report(engine, {"tokens": 101}) == SoftBreach(
        dimension="tokens", current_usage=101, soft_limit=100
    )
    status = await engine.get_budget_status("b")
    assert (status.usage["tokens"], status.breach_count, status.soft_breach_count) == (101, 1, 0)
    assert status.last_breach_dim == "tokens"


async def test_a_budget_that_nobody_created_has_no_limits_and_counts(engine: Engine) -> None:
    assert await report(engine, {"tokens": 5}) == OK
    assert await report(engine, {"tokens": 6}) == OK

    found = await engine.read_budget_usage_and_limits("b")
    assert (found.limits, found.usage) == ({}, {"tokens": 11})
    await make(engine)
    found = await engine.read_budget_usage_and_limits("b")
    assert found.usage == {"tokens": 11}, "what was counted before stays"
    assert found.limits == {
        "hard:tokens": 100,
        "hard:calls": 10,
        "soft:tokens": 50,
        "soft:calls": 0,
    }
    with pytest.raises(NotFound, match="budget c does not exist"):
        await engine.get_budget_status("c")


async def test_breaches_are_counted_by_dimension(engine: Engine) -> None:
    await make(engine)
    before = dict(BUDGET_BREACHES.values)

    await report(engine, {"tokens": 60})
    await report(engine, {"tokens": 60})

    assert {
        labels: count - before.get(labels, 0)
        for labels, count in BUDGET_BREACHES.values.items()
        if labels[0] == "tokens"
    } == {("tokens", "soft"): 1, ("tokens", "hard"): 1}


async def test_a_key_counts_once_in_a_day_for_its_budget(engine: Engine, ff_clock: Clock) -> None:
    await make(engine)
    await make(engine, "other")

    assert [await report(engine, {"tokens": 10}, "k") for _ in range(2)] == [OK, AGAIN]
    assert await report(engine, {"tokens": 10}, "k", "other") == OK
    assert await report(engine, {"tokens": 60}, "soft") == await report(engine, {}, "soft")
    assert await usage(engine) == {"tokens": 70}
    await engine.reset_budget("b")
    assert await report(engine, {"tokens": 10}, "k") == AGAIN, "also in the next period"
    await report(engine, {"tokens": 70})
    await ff_clock.advance(DAY)
    assert await report(engine, {"tokens": 10}, "k") == SoftBreach(
        dimension="tokens", current_usage=80, soft_limit=50
    )


@pytest.mark.parametrize("ends", ["commits", "is rolled back", "is refused"])
async def test_a_repeat_beside_the_first_call_waits_for_it(
    engine: Engine, db: Connection, another: Another, ends: str
) -> None:
    await make(engine)
    if ends == "is refused":
        await report(engine, {"tokens": 100})
    first, second = await another(), await another()
    transaction = first.transaction()
    await transaction.start()
    answer = await report_usage_admin(first, "b", ["tokens"], [5], dedup_key="k")

    repeat = await given.blocked(
        db, second, report_usage_admin(second, "b", ["tokens"], [5], dedup_key="k")
    )
    await (transaction.rollback() if ends == "is rolled back" else transaction.commit())

    if ends == "is refused":
        assert isinstance(answer, HardBreach)
        assert await repeat == answer, "a key that was refused is free"
        assert await usage(engine) == {"tokens": 100}
    else:
        assert await repeat == (AGAIN if ends == "commits" else OK)
        assert await usage(engine) == {"tokens": 5}


async def test_a_key_that_was_refused_is_free(engine: Engine) -> None:
    await make(engine)
    await report(engine, {"tokens": 100})

    assert isinstance(await report(engine, {"tokens": 1}, "k"), HardBreach)
    await engine.reset_budget("b")
    assert await report(engine, {"tokens": 1}, "k") == OK


async def test_many_reports_are_one_statement_in_their_order(db: Connection) -> None:
    await db.execute(
        "INSERT INTO ff.budget_policy (partition_key, budget_id, scope_type, scope_id,"
        " enforcement_mode, policy_json, created_at_ms, updated_at_ms)"
        " SELECT ff.budget_partition($1), $1, 'x', '', 'strict',"
        ' \'{"hard_limits": {"n": 10}, "soft_limits": {}}\', 0, 0',
        budget_id("b"),
    )
    answers = await db.fetch(
        "SELECT outcome FROM ff.report_usage($1, $2, $3) ORDER BY ordinal",
        [budget_id("b")] * 5 + [budget_id("c")],
        [f'{{"n": {n}}}' for n in (8, 8, 3, 2, 2, 9)],
        ["", "k", "k", "k", "k", "k"],
    )

    assert [row["outcome"] for row in answers] == [
        "ok",
        "hard_breach",
        "hard_breach",
        "ok",
        "already_applied",
        "ok",
    ]


async def test_spends_are_given_back_by_execution(engine: Engine) -> None:
    await make(engine)
    one, two = ExecutionId.mint(), ExecutionId.mint()

    assert await engine.record_spend("b", one, {"tokens": 5}) == OK
    assert await engine.record_spend("b", one, {"tokens": 7, "calls": 1}) == OK
    assert await engine.record_spend("b", two, {"tokens": 8}, idempotency_key="k") == OK
    assert await engine.record_spend("b", two, {"tokens": 8}, idempotency_key="k") == AGAIN
    assert await report(engine, {"tokens": 1}, "k") == OK, "keys of reports are apart"
    refused = await engine.record_spend("b", two, {"tokens": 80, "calls": 1})
    assert refused == HardBreach(dimension="tokens", current_usage=21, hard_limit=100)

    released = await engine.release_budget("b", one)

    assert released == BudgetReleased(budget_id=budget_id("b"), released={"tokens": 12, "calls": 1})
    assert await usage(engine) == {"tokens": 9}
    assert (await engine.release_budget("b", one)).released == {}
    assert (await engine.release_budget("b", two)).released == {"tokens": 8}
    assert await usage(engine) == {"tokens": 1}, "what was reported is not given back"
    assert await engine.record_spend("b", two, {"tokens": 8}, idempotency_key="k") == AGAIN


async def test_what_an_operator_reports_leaves_one_event_if_it_is_counted(
    engine: Engine, db: Connection
) -> None:
    await make(engine)
    by: dict[str, Any] = {"actor": "ann", "reason": "invoice 7"}

    for amount in (5, 5, 60, 60):  # counted, a duplicate, over the soft limit, over the hard one
        key = f"k{amount}" if amount == 5 else None
        await engine.report_usage_admin("b", ["tokens"], [amount], dedup_key=key, **by)

    facts = {"budget_id": str(budget_id("b"))}
    assert (await actions(db))[1:] == [
        Action("usage_reported", "ann", "invoice 7", {**facts, "amounts": {"tokens": amount}})
        for amount in (5, 60)
    ]


async def test_what_an_operator_releases_leaves_one_event_if_there_was_something(
    engine: Engine, db: Connection
) -> None:
    await make(engine)
    execution = await given.created(db)
    await engine.record_spend("b", execution, {"tokens": 5})

    for _ in range(2):
        await engine.release_budget("b", execution, actor="ann", reason="refund")

    facts = {"budget_id": str(budget_id("b")), "released": {"tokens": 5}}
    assert await actions(db, execution) == [Action("budget_released", "ann", "refund", facts)]


async def test_what_a_handler_gives_back_is_no_operators_action(
    engine: Engine, db: Connection
) -> None:
    await make(engine)
    execution = await given.created(db)
    await engine.record_spend("b", execution, {"tokens": 5})

    assert (await engine.give_back("b", execution)).released == {"tokens": 5}
    assert (await engine.give_back("b", execution)).released == {}

    assert await usage(engine) == {}
    assert await actions(db, execution) == []


async def test_a_release_after_a_reset_takes_nothing_from_the_new_period(engine: Engine) -> None:
    await make(engine)
    one = ExecutionId.mint()
    await engine.record_spend("b", one, {"tokens": 20, "calls": 2})
    await engine.reset_budget("b")
    await report(engine, {"tokens": 30})
    await engine.record_spend("b", one, {"tokens": 3})

    assert (await engine.release_budget("b", one)).released == {"tokens": 3}
    assert await usage(engine) == {"tokens": 30}


async def test_a_release_never_leaves_less_than_nothing(engine: Engine, db: Connection) -> None:
    await make(engine)
    one = ExecutionId.mint()
    await engine.record_spend("b", one, {"tokens": 5})
    await db.execute("UPDATE ff.budget_usage SET current_value = 2")

    await engine.release_budget("b", one)

    assert await db.fetchval("SELECT current_value FROM ff.budget_usage") == 0


async def test_a_worker_reports_with_its_lease(
    engine: Engine, db: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    claimed = await given.claimed_task(db)
    lease = claimed.lease
    handle = lease.handle(lease_ttl=30, lane_id="default", worker_instance_id="w-1")

    assert await engine.report_usage(lease, "b", {"tokens": 1}) == OK
    assert await engine.report_usage(handle, "b", {"tokens": 1}, dedup_key="k") == OK
    assert (
        await engine.report_usage(
            handle.encode(), "b", {"wall_ms": 1}, input_tokens=2, output_tokens=3, wall_ms=4
        )
        == OK
    )
    assert caplog.messages == []
    stale = Lease(lease.execution_id, 0, lease.lease_epoch + 1, lease.lease_id)
    with caplog.at_level(logging.WARNING):
        assert await engine.report_usage(stale, "b", {"tokens": 1}) == OK
    assert "stale" in caplog.text
    assert await usage(engine) == {
        "tokens": 3,
        "wall_ms": 5,
        "input_tokens": 2,
        "output_tokens": 3,
    }


async def test_a_report_of_an_execution_that_does_not_exist_counts_nothing(engine: Engine) -> None:
    lease = Lease(ExecutionId.mint(), 0, 1, uuid4())

    with pytest.raises(NotFound):
        await engine.report_usage(lease, "b", {"tokens": 1})

    assert await usage(engine) == {}


BIG = 2**63 - 1
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("report_usage_admin", {"dimensions": ["a", "b"], "deltas": [1]}, "deltas"),
    ("report_usage_admin", {"dimensions": ["a", "a"], "deltas": [1, 1]}, "twice"),
    ("report_usage_admin", {"dimensions": "a", "deltas": [1]}, "must be a list"),
    ("report_usage_admin", {"dimensions": [""], "deltas": [1]}, "dimensions"),
    ("report_usage_admin", {"dimensions": ["a"], "deltas": [-1]}, "2\\^63-1"),
    ("report_usage_admin", {"dimensions": ["a"], "deltas": [BIG + 1]}, "2\\^63-1"),
    ("report_usage_admin", {"dimensions": ["a"], "deltas": [1.0]}, "whole number"),
    ("report_usage_admin", {"dimensions": ["a"], "deltas": [True]}, "whole number"),
    ("report_usage_admin", {"dimensions": ["a"], "deltas": [1], "dedup_key": 7}, "dedup_key"),
    ("record_spend", {"execution_id": "x", "deltas": {"a": 1}}, "execution_id"),
    ("record_spend", {"execution_id": ExecutionId.mint(), "deltas": {"a": -1}}, "deltas"),
    ("record_spend", {"execution_id": ExecutionId.mint(), "deltas": [1]}, "deltas"),
    ("release_budget", {"execution_id": "x"}, "execution_id"),
    ("give_back", {"execution_id": "x"}, "execution_id"),
    ("report_usage", {"handle": b"?", "dimensions": {"a": 1}}, "handle"),
    ("report_usage", {"handle": "?", "dimensions": {"a": 1}}, "handle"),
    (
        "report_usage",
        {"handle": Lease(ExecutionId.mint(), 0, 1, uuid4()), "dimensions": {}, "wall_ms": -1},
        "wall_ms",
    ),
]


async def test_what_cannot_be_is_refused_and_counts_nothing(engine: Engine, db: Connection) -> None:
    for operation, arguments, why in BAD:
        with pytest.raises(ValidationError, match=why):
            await getattr(engine, operation)(budget_id="b", **arguments)
    with pytest.raises(ValidationError, match="budget"):
        await engine.report_usage_admin("", ["a"], [1])

    assert await db.fetchval("SELECT count(*) FROM ff.budget_usage") == 0


async def test_a_counter_that_would_overflow_is_left_as_it_is(engine: Engine) -> None:
    await report(engine, {"tokens": BIG})

    with pytest.raises(ValidationError, match=r"tokens.*2\^63-1"):
        await report(engine, {"calls": 1, "tokens": 1}, "k")

    assert await usage(engine) == {"tokens": BIG}
    assert await report(engine, {"calls": 1}, "k") == OK


async def test_ids_names_and_partitions_are_the_same_in_sql(db: Connection) -> None:
    ids = [
        UUID("00000000-0000-0000-0000-000000000000"),
        UUID("ffffffff-ffff-4fff-8fff-ffffffffffff"),
        *(uuid4() for _ in range(20)),
    ]
    names = ["agent", "agent/ü", str(ids[3]).upper(), " x"]

    assert [await db.fetchval("SELECT ff.budget_partition($1)", each) for each in ids] == [
        uuid_partition(each, 32) for each in ids
    ]
    assert uuid_partition(ids[1], 32) == 2
    assert [await db.fetchval("SELECT ff.budget_id($1)", each) for each in names] == [
        budget_id(each) for each in names
    ]
