"""A flow is cancelled: its graph is closed, and members that are to end are listed and parked."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.cancel_flow_header import (
    FlowAlreadyCancelled,
    FlowCancelAccepted,
    cancel_flow_header,
)
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.operators.block_execution_for_admission import block_execution_for_admission
from flowfabric.engine.operators.unblock_execution import unblock_execution
from flowfabric.errors import EngineError, ExecutionNotEligible, NotFound, ValidationError
from flowfabric.states import CancellationPolicy
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases
from tests.engine.controls import NO_DATABASE
from tests.engine.flows.graphs import Graph, empty, submitted
from tests.engine.grants.granted import claim_granted, keyed

ENDED = ("cancelled", "completed", "expired", "failed", "skipped")
PENDING = ("blocked", "children", "delayed", "retrying", "waiting")
RUNNING = ("active",)
TARGETS = {
    "cancel_flow_only": (),
    "cancel_pending": PENDING,
    "cancel_all": tuple(sorted((*RUNNING, *PENDING))),
}
ALL = tuple(sorted((*ENDED, *PENDING, *RUNNING)))
PARKED = (
    "runnable",
    "blocked_by_operator",
    "paused_by_flow_cancel",
    "none",
    "pending_first_attempt",
    "waiting",
)


async def motley(engine: Engine, db: Connection) -> Graph:
    """A flow with a member in every state, each called after it."""
    flow = await submitted(
        engine,
        f"{' '.join(ALL)} waiting>children",
        fields={"delayed": {"delay": 600}, "retrying": {"policy": given.retrying(1)}},
    )
    await block_execution_for_admission(db, flow["blocked"], "waiting_for_quota")
    await flow.claim("active", "retrying")
    lease = flow.leases.pop("retrying")
    await engine.fail([Failure(lease=lease, reason="boom")])
    await flow.complete("completed", result=b"done")
    await flow.fail("failed")
    await flow.cancel("cancelled")
    await flow.end("expired", "E")
    await flow.end("skipped", "K")
    await flow.carry_all()
    return flow


async def refused(db: Connection, engine: Engine, *args: Any, **fields: Any) -> EngineError:
    before = await given.everything(db)
    with pytest.raises(EngineError) as error:
        await engine.cancel_flow_header(*args, **fields)
    assert await given.everything(db) == before
    return error.value


@pytest.mark.parametrize("policy", TARGETS)
async def test_who_is_to_end_depends_on_the_policy(
    db: Connection, ff_engine: Engine, policy: str
) -> None:
    flow = await motley(ff_engine, db)
    before = {name: await flow.row(name) for name in ALL}

    header = await ff_engine.cancel_flow_header(flow.flow_id, reason="enough", policy=policy)

    assert isinstance(header, FlowCancelAccepted)
    assert header.cancellation_policy == policy
    assert flow.named(header.member_execution_ids) == list(TARGETS[policy])
    assert header.member_execution_ids == sorted(header.member_execution_ids)
    for name in ALL:
        row = await flow.row(name)
        if name in TARGETS[policy] and name not in RUNNING:
            assert (row["eligibility_state"], row["blocking_reason"]) == PARKED[1:3]
            assert row["lifecycle_phase"] == "runnable"
        else:
            marked = name in RUNNING and policy != "cancel_flow_only"
            assert row == before[name] | {"flow_cancelled": marked}, name
    listed = await db.fetch("SELECT execution_id FROM ff.cancel_backlog_member")
    assert sorted(row["execution_id"] for row in listed) == sorted(
        flow[name].uuid for name in TARGETS[policy]
    )


async def test_the_flow_says_when_why_and_how(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await submitted(ff_engine, "a>b")
    before = await flow.flow()
    await clock.advance(5)

    await ff_engine.cancel_flow_header(
        flow.flow_id, reason="enough", policy="cancel_pending", grace=7, requester="ann"
    )

    now = await clock.now_ms()
    assert await flow.flow() == before | {
        "public_flow_state": "cancelled",
        "terminal_at_ms": now,
        "last_mutation_at_ms": now,
        "cancellation_policy": "cancel_pending",
        "cancel_reason": "enough",
    }
    [backlog] = await db.fetch("SELECT * FROM ff.cancel_backlog")
    assert dict(backlog) == {
        "partition_key": before["partition_key"],
        "flow_id": flow.flow_id,
        "requested_at_ms": now,
        "grace_until_ms": now + 7000,
        "requester": "ann",
        "reason": "enough",
        "cancellation_policy": "cancel_pending",
        "status": "pending",
    }


@pytest.mark.parametrize("policy", TARGETS)
async def test_one_event_tells_of_it(db: Connection, ff_engine: Engine, policy: str) -> None:
    flow = await submitted(ff_engine, "a>b")

    await ff_engine.cancel_flow_header(
        flow.flow_id, reason="enough", policy=policy, requester="ann"
    )

    [event] = await db.fetch("SELECT * FROM ff.operator_event")
    assert event["event_type"] == "flow_cancel_requested"
    assert (event["actor"], event["reason"]) == ("ann", "enough")
    assert (event["partition_key"], event["flow_id"]) == (flow["a"].partition_key, flow.flow_id)
    assert msgspec.json.decode(event["details"]) == {
        "flow_id": str(flow.flow_id),
        "cancellation_policy": policy,
        "member_count": 0 if policy == "cancel_flow_only" else 2,
    }


async def test_without_a_reason_it_is_that_the_flow_was_cancelled(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a")

    await ff_engine.cancel_flow_header(flow.flow_id)

    row = await flow.flow()
    assert (row["cancel_reason"], row["cancellation_policy"]) == ("flow_cancelled", "cancel_all")


async def test_what_is_parked_cannot_be_claimed(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await submitted(ff_engine, "a>b c", fields={"c": {"delay": 5}})
    await ff_engine.cancel_flow_header(flow.flow_id)
    for name in "abc":
        assert await given.vector(db, flow[name]) == PARKED
    await clock.advance(60)

    assert await promote_due(db, limit=10) == 0
    assert await claim(db, given.WORKER, ttl=30, limit=10) == []


async def test_an_operator_cannot_let_go_what_is_parked(db: Connection, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a")
    await ff_engine.cancel_flow_header(flow.flow_id)

    with pytest.raises(ExecutionNotEligible):
        await unblock_execution(db, flow["a"])

    assert await claim(db, given.WORKER, ttl=30, limit=10) == []


async def test_grants_are_withdrawn(db: Connection, ff_engine: Engine) -> None:
    await keyed(db)
    flow = await submitted(ff_engine, "a b")
    await claim_granted(db, flow["a"])

    await ff_engine.cancel_flow_header(flow.flow_id)

    assert await db.fetchval("SELECT count(*) FROM ff.claim_grant") == 0


@pytest.mark.parametrize("policy", TARGETS)
async def test_nobody_to_end_is_no_backlog(db: Connection, ff_engine: Engine, policy: str) -> None:
    for flow in (await empty(ff_engine), await submitted(ff_engine, "a")):
        if flow.ids:
            await flow.complete("a")

        header = await ff_engine.cancel_flow_header(flow.flow_id, policy=policy)

        assert isinstance(header, FlowCancelAccepted)
        assert header.member_execution_ids == []
        assert (await flow.flow())["public_flow_state"] == "cancelled"
    assert await db.fetchval("SELECT count(*) FROM ff.cancel_backlog") == 0
    assert await db.fetchval("SELECT count(*) FROM ff.operator_event") == 2


# A second time.


async def test_a_second_cancel_changes_nothing(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await submitted(ff_engine, "a>b c")
    await flow.complete("c")
    await ff_engine.cancel_flow_header(flow.flow_id, reason="first", policy="cancel_pending")
    before = await given.everything(db)
    await clock.advance(5)

    again = await ff_engine.cancel_flow_header(
        flow.flow_id, reason="second", policy="cancel_all", requester="bob"
    )

    assert again == FlowAlreadyCancelled(
        flow_id=flow.flow_id,
        stored_cancellation_policy=CancellationPolicy.CANCEL_PENDING,
        stored_cancel_reason="first",
        member_execution_ids=sorted([flow["a"], flow["b"]]),
    )
    assert await given.everything(db) == before


async def test_once_nobody_is_owed_it_names_all_members(db: Connection, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b c")
    await flow.complete("c")
    await ff_engine.cancel_flow(flow.flow_id)
    before = await given.everything(db)

    again = await ff_engine.cancel_flow_header(flow.flow_id)

    assert isinstance(again, FlowAlreadyCancelled)
    assert again.member_execution_ids == sorted(flow.ids.values())
    assert await given.everything(db) == before


async def test_a_stronger_policy_does_not_escalate(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b")
    await ff_engine.cancel_flow(flow.flow_id, policy="cancel_flow_only")

    await ff_engine.cancel_flow(flow.flow_id, policy="cancel_all")

    assert await flow.states() == "a:w b:wc"


# Refusals.


async def test_there_must_be_such_a_flow(db: Connection, ff_engine: Engine) -> None:
    error = await refused(db, ff_engine, uuid4())

    assert (type(error), error.code, error.http_status) == (NotFound, "flow_not_found", 404)


@all_cases(
    ("fields", "code"),
    [
        ({"policy": "flow_only"}, "invalid_input"),
        ({"policy": "CANCEL_ALL"}, "invalid_input"),
        ({"policy": ""}, "invalid_input"),
        ({"grace": -1}, "invalid_grace_ms"),
        ({"grace": 2**53}, "invalid_grace_ms"),
        ({"grace": float("nan")}, "invalid_grace_ms"),
        ({"grace": True}, "invalid_grace_ms"),
        ({"grace": "5"}, "invalid_grace_ms"),
        ({"requester": ""}, "invalid_input"),
        ({"requester": "a\x00"}, "invalid_input"),
        ({"reason": "a\x00"}, "invalid_input"),
        ({"reason": "x" * 16_385}, "invalid_input"),
        ({"policy": "?", "grace": -1}, "invalid_input"),
    ],
)
async def test_what_cannot_be_meant_is_refused_before_any_sql(
    fields: dict[str, Any], code: str
) -> None:
    with pytest.raises(ValidationError) as error:
        await cancel_flow_header(NO_DATABASE, uuid4(), **fields)

    assert error.value.code == code


@pytest.mark.parametrize("grace", [timedelta(0), timedelta(milliseconds=2**53 - 1)])
async def test_any_grace_up_to_that_can_be_stored(
    db: Connection, ff_engine: Engine, clock: Clock, grace: timedelta
) -> None:
    flow = await submitted(ff_engine, "a")

    await ff_engine.cancel_flow_header(flow.flow_id, grace=grace)

    until = await db.fetchval("SELECT grace_until_ms FROM ff.cancel_backlog")
    assert until == await clock.now_ms() + grace // timedelta(milliseconds=1)


async def test_a_small_flow_ends_in_the_transaction_that_cancels_it(
    ff_engine: Engine, db: Connection
) -> None:
    flow = await motley(ff_engine, db)
    before = {name: await flow.row(name) for name in ENDED}

    answer = await ff_engine.cancel_flow_header(flow.flow_id, reason="enough", end_at_once=1000)

    assert isinstance(answer, FlowCancelAccepted)
    assert flow.named(answer.member_execution_ids) == list(TARGETS["cancel_all"])
    assert answer.cancel_pending == 0
    assert {await flow.state(name) for name in TARGETS["cancel_all"]} == {"cancelled"}
    assert {name: await flow.row(name) for name in ENDED} == before
    assert await flow.count("cancel_backlog") == 0
    assert (await flow.row("active"))["cancelled_by"] == "cancel_flow"
    [refused] = await ff_engine.complete([Completion(flow.leases["active"])])
    assert "ended as cancelled" in str(refused)


async def test_what_is_too_large_to_end_at_once_is_owed(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b c")

    answer = await ff_engine.cancel_flow_header(flow.flow_id, end_at_once=2)

    assert isinstance(answer, FlowCancelAccepted)
    assert answer.cancel_pending == 3
    assert await flow.count("cancel_backlog_member") == 3


async def test_where_what_runs_goes_on_nobody_ends_at_once(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a b")
    await flow.claim("a")

    answer = await ff_engine.cancel_flow_header(
        flow.flow_id, policy="cancel_pending", end_at_once=1000
    )

    assert isinstance(answer, FlowCancelAccepted)
    assert answer.cancel_pending == 1
    assert await flow.state("a") == "active"
    await flow.complete("a")


async def test_a_repeated_cancel_names_at_most_a_thousand(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, " ".join(f"m{number}" for number in range(1001)))
    await ff_engine.cancel_flow_header(flow.flow_id)

    again = await ff_engine.cancel_flow_header(flow.flow_id)

    assert isinstance(again, FlowAlreadyCancelled)
    assert len(again.member_execution_ids) == 1000
