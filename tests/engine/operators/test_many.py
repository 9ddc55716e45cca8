"""Controls of many executions at once: one answer for each, in order, refusals among them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.cancel import Cancelled
from flowfabric.engine.lifecycle.complete import Completed
from flowfabric.engine.lifecycle.delay import Delayed
from flowfabric.engine.lifecycle.fail import TerminalFailed
from flowfabric.engine.operators.block_execution_for_admission import Blocked
from flowfabric.engine.operators.change_priority import PriorityChanged
from flowfabric.engine.operators.control import MAX_EXECUTIONS
from flowfabric.engine.operators.replay_execution import Replayed
from flowfabric.engine.operators.resume_execution import Resumed
from flowfabric.engine.operators.revoke_lease import LeaseNotRevoked, LeaseRevoked, NotRevokedReason
from flowfabric.engine.operators.unblock_execution import Unblocked
from flowfabric.engine.operators.wake_execution import Woken
from flowfabric.errors import (
    ExecutionNotActive,
    ExecutionNotEligible,
    ExecutionNotSuspended,
    ExecutionNotTerminal,
    FlowAlreadyTerminal,
    MaxReplaysExhausted,
    NotFound,
    StaleLease,
    ValidationError,
)
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy
from tests import given
from tests.engine.controls import actions, bad_actors, execution
from tests.engine.flows.graphs import submitted


class Control(msgspec.Struct, frozen=True):
    """A plural, the state that it changes, and one that it refuses."""

    call: Callable[[Engine, Sequence[ExecutionId]], Awaitable[list[Any]]]
    state: str
    answer: type
    refused: str
    refusal: type
    event: str
    after: str


CONTROLS = {
    "cancel_executions": Control(
        lambda engine, some: engine.cancel_executions(some, reason="no", actor="ann"),
        *("waiting", Cancelled, "completed", ValidationError, "cancelled", "cancelled"),
    ),
    "replay_executions": Control(
        lambda engine, some: engine.replay_executions(some, reason="no", actor="ann"),
        *("failed", Replayed, "active", ExecutionNotTerminal, "replayed", "waiting"),
    ),
    "resume_executions": Control(
        lambda engine, some: engine.resume_executions(some, reason="no", actor="ann"),
        *("suspended", Resumed, "active", ExecutionNotSuspended, "resumed", "resumable"),
    ),
    "revoke_leases": Control(
        lambda engine, some: engine.revoke_leases(some, reason="no", actor="ann"),
        *("active", LeaseRevoked, "delayed", LeaseNotRevoked, "lease_revoked", "waiting"),
    ),
    "override_completes": Control(
        lambda engine, some: engine.override_completes(some, reason="no", actor="ann"),
        *("active", Completed, "delayed", ExecutionNotActive, "completed", "completed"),
    ),
    "override_fails": Control(
        lambda engine, some: engine.override_fails(some, reason="no", actor="ann"),
        *("active", TerminalFailed, "completed", ExecutionNotActive, "failed", "failed"),
    ),
    "override_delays": Control(
        lambda engine, some: engine.override_delays(some, delay=60, reason="no", actor="ann"),
        *("active", Delayed, "completed", ExecutionNotActive, "delayed", "delayed"),
    ),
    "change_priorities": Control(
        lambda engine, some: engine.change_priorities(some, 7, reason="no", actor="ann"),
        *(
            "waiting",
            PriorityChanged,
            "active",
            ExecutionNotEligible,
            "priority_changed",
            "waiting",
        ),
    ),
    "block_executions_for_admission": Control(
        lambda engine, some: engine.block_executions_for_admission(
            some, "paused_by_operator", detail="no", actor="ann"
        ),
        *("waiting", Blocked, "delayed", ExecutionNotEligible, "blocked", "waiting"),
    ),
    "unblock_executions": Control(
        lambda engine, some: engine.unblock_executions(some, actor="ann"),
        *("paused", Unblocked, "waiting", ExecutionNotEligible, "unblocked", "waiting"),
    ),
    "wake_executions": Control(
        lambda engine, some: engine.wake_executions(some, reason="no", actor="ann"),
        *("delayed", Woken, "active", ExecutionNotEligible, "woken", "waiting"),
    ),
}
each = pytest.mark.parametrize("control", CONTROLS.values(), ids=CONTROLS)


async def in_state(db: Connection, engine: Engine, state: str) -> ExecutionId:
    if state != "paused":
        return await execution(db, state)
    execution_id = await given.created(db)
    await engine.block_execution_for_admission(execution_id, "paused_by_operator")
    await db.execute("DELETE FROM ff.operator_event")
    return execution_id


@each
async def test_every_execution_is_changed_and_told_of(
    db: Connection, ff_engine: Engine, control: Control
) -> None:
    some = [await in_state(db, ff_engine, control.state) for _ in range(4)]
    asked = [some[2], some[0], some[3], some[1]]

    answers = await control.call(ff_engine, asked)

    assert [type(answer) for answer in answers] == [control.answer] * 4
    assert [answer.execution_id for answer in answers] == asked
    told = await actions(db)
    assert [(event.event_type, event.actor) for event in told] == [(control.event, "ann")] * 4
    for one in some:
        assert (await given.row(db, one))["public_state"] == control.after
        [event] = await actions(db, one)
        assert (event.reason, event.event_type) in {("no", control.event), (None, "unblocked")}


@each
async def test_a_refusal_is_an_answer_and_its_neighbours_are_changed(
    db: Connection, ff_engine: Engine, control: Control
) -> None:
    refused = await in_state(db, ff_engine, control.refused)
    first, second = [await in_state(db, ff_engine, control.state) for _ in range(2)]
    unknown = ExecutionId.mint()
    before = await given.row(db, refused)

    answers = await control.call(ff_engine, [first, unknown, refused, second])

    assert [type(answer) for answer in answers] == [
        control.answer,
        NotFound,
        control.refusal,
        control.answer,
    ]
    assert str(unknown) in str(answers[1])
    assert await given.row(db, refused) == before
    assert [event.event_type for event in await actions(db)] == [control.event] * 2


@each
async def test_one_that_is_named_twice_is_changed_once(
    db: Connection, ff_engine: Engine, control: Control
) -> None:
    one = await in_state(db, ff_engine, control.state)
    two = await in_state(db, ff_engine, control.state)

    answers = await control.call(ff_engine, [one, two, one])

    assert answers[0] == answers[2]
    assert [answer.execution_id for answer in answers] == [one, two, one]
    assert len(await actions(db, one)) == len(await actions(db, two)) == 1


@each
async def test_none_at_all(db: Connection, ff_engine: Engine, control: Control) -> None:
    assert await control.call(ff_engine, []) == []
    assert await actions(db) == []


@each
async def test_more_than_a_batch_is_refused_and_nothing_changed(
    db: Connection, ff_engine: Engine, control: Control
) -> None:
    one = await in_state(db, ff_engine, control.state)
    before = await given.everything(db)

    with pytest.raises(ValidationError, match="executions 1001 must be at most 1000"):
        await control.call(ff_engine, [one] * (MAX_EXECUTIONS + 1))

    assert await given.everything(db) == before


@each
async def test_a_whole_batch(db: Connection, ff_engine: Engine, control: Control) -> None:
    some = [ExecutionId.mint() for _ in range(MAX_EXECUTIONS - 1)]
    one = await in_state(db, ff_engine, control.state)

    answers = await control.call(ff_engine, [*some, one])

    assert [type(answer) for answer in answers] == [NotFound] * len(some) + [control.answer]


@bad_actors
async def test_an_actor_that_cannot_be_stored(ff_engine: Engine, actor: str) -> None:
    some = [ExecutionId.mint()]
    for call in (
        lambda: ff_engine.cancel_executions(some, reason="no", actor=actor),
        lambda: ff_engine.replay_executions(some, actor=actor),
        lambda: ff_engine.revoke_leases(some, reason="no", actor=actor),
        lambda: ff_engine.change_priorities(some, 1, actor=actor),
        lambda: ff_engine.block_executions_for_admission(some, "paused_by_operator", actor=actor),
        lambda: ff_engine.unblock_executions(some, actor=actor),
    ):
        with pytest.raises(ValidationError, match="actor"):
            await call()


# Each on its own.


async def test_cancelled_before_is_cancelled_again_and_not_told(
    db: Connection, ff_engine: Engine
) -> None:
    before, now = await execution(db, "cancelled"), await given.created(db)
    await db.execute("DELETE FROM ff.operator_event")

    answers = await ff_engine.cancel_executions([before, now], reason="no")

    assert answers == [
        Cancelled(execution_id=before, repeated=True),
        Cancelled(execution_id=now),
    ]
    assert await actions(db, before) == []


async def test_another_source_cancels_only_what_it_holds(db: Connection, ff_engine: Engine) -> None:
    later = await execution(db, "active")
    await ff_engine.revoke_lease(later, reason="stuck")
    await ff_engine.claim(given.OTHER, ttl=30)
    held, waits = await execution(db, "active"), await given.created(db)
    epoch = (await given.row(db, held))["lease_epoch"]

    answers = await ff_engine.cancel_executions(
        [later, held, waits], reason="no", source="lease_holder", lease_epoch=epoch
    )

    assert isinstance(answers[0], StaleLease)
    assert answers[1:] == [Cancelled(execution_id=held), Cancelled(execution_id=waits)]
    assert [event.event_type for event in await actions(db)] == ["lease_revoked"]


async def test_without_an_epoch_only_what_nobody_holds_is_cancelled(
    db: Connection, ff_engine: Engine
) -> None:
    held, waits = await execution(db, "active"), await given.created(db)

    answers = await ff_engine.cancel_executions([held, waits], reason="no", source="lease_holder")

    assert isinstance(answers[0], ValidationError)
    assert answers[1] == Cancelled(execution_id=waits)


async def test_the_leases_of_one_claim_are_revoked_by_their_id(
    db: Connection, ff_engine: Engine
) -> None:
    some = [await given.created(db) for _ in range(3)]
    claimed = await ff_engine.claim(given.WORKER, ttl=30, limit=2)
    await ff_engine.claim(given.OTHER, ttl=30, limit=1)
    mine = {task.lease.execution_id for task in claimed}

    answers = await ff_engine.revoke_leases(
        some, reason="stuck", expected_lease_id=claimed[0].lease.lease_id
    )

    assert {answer.execution_id for answer in answers if isinstance(answer, LeaseRevoked)} == mine
    [kept] = [answer for answer in answers if isinstance(answer, LeaseNotRevoked)]
    assert kept.reason is NotRevokedReason.LEASE_ID_MISMATCH


async def test_the_written_lease_of_one_is_refused_for_the_others(
    db: Connection, ff_engine: Engine
) -> None:
    one, two = await execution(db, "active"), await execution(db, "active")
    epoch = (await given.row(db, one))["lease_epoch"]
    written = f"pg:{one.uuid}:0:{epoch}"

    answers = await ff_engine.revoke_leases([one, two], reason="x", expected_lease_id=written)

    assert isinstance(answers[0], LeaseRevoked)
    assert isinstance(answers[1], ValidationError)
    with pytest.raises(ValidationError, match="is not a lease of"):
        await ff_engine.revoke_leases([two], reason="x", expected_lease_id=written)


async def test_only_those_blocked_for_the_expected_reason_are_unblocked(
    db: Connection, ff_engine: Engine
) -> None:
    quota, paused = await given.created(db), await given.created(db)
    await ff_engine.block_execution_for_admission(quota, "waiting_for_quota")
    await ff_engine.block_execution_for_admission(paused, "paused_by_operator")

    answers = await ff_engine.unblock_executions(
        [paused, quota], expected_blocking_reason="waiting_for_quota"
    )

    assert isinstance(answers[0], ExecutionNotEligible)
    assert answers[1] == Unblocked(execution_id=quota)
    assert [event.event_type for event in await actions(db)] == ["blocked", "blocked", "unblocked"]


# Replays of members.


async def test_members_are_replayed_with_what_they_depend_on(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "a>d d>e b>e")
    await flow.fail("a")
    await flow.complete("b")
    await flow.carry_all()
    assert await flow.states() == "a:f b:ok d:k e:k"

    answers = await ff_engine.replay_executions([flow["e"], flow["a"], flow["d"], flow["b"]])

    assert [answer.public_state for answer in answers if isinstance(answer, Replayed)] == [
        "waiting_children",
        "waiting",
        "waiting_children",
        "waiting",
    ]
    branches = [event.details["branch"] for event in await actions(db)]
    assert branches == ["skipped_flow_member", "normal", "skipped_flow_member", "normal"]
    for name in "bade":
        await flow.complete(name)
        await flow.carry_all()
    assert await flow.states() == "a:ok b:ok d:ok e:ok"
    assert await flow.derived() == "completed"


async def test_each_member_answers_with_the_state_that_its_join_came_to(
    ff_engine: Engine,
) -> None:
    flow = await submitted(ff_engine, "a>d b>e c>f", refs=["a>d"])
    await flow.fail("a", "b", "c")
    await flow.carry_all()
    await flow.replay("a", downstream=False)
    await flow.complete("a", result=b"R")
    await flow.carry_all()

    answers = await ff_engine.replay_executions([flow["e"], flow["d"], flow["f"]])

    assert [answer.public_state for answer in answers if isinstance(answer, Replayed)] == [
        "waiting_children",
        "waiting",
        "waiting_children",
    ]
    assert await flow.payload("d") == b"R"
    assert await flow.states() == "a:ok b:f c:f d:w e:wc f:wc"


async def test_members_of_several_flows_beside_executions_without_one(
    db: Connection, ff_engine: Engine
) -> None:
    policy = ExecutionPolicy(max_replay_count=0)
    flows = [await submitted(ff_engine, "a>d") for _ in range(3)]
    for flow in flows:
        await flow.fail("a")
        await flow.carry_all()
    await ff_engine.cancel_flow(flows[1].flow_id, policy="cancel_flow_only")
    alone = await execution(db, "failed")
    never = await execution(db, "cancelled", policy=policy)
    asked = [never, flows[2]["d"], alone, flows[1]["d"], flows[0]["d"], flows[0]["a"]]

    answers = await ff_engine.replay_executions(asked)

    assert [type(answer) for answer in answers] == [
        MaxReplaysExhausted,
        Replayed,
        Replayed,
        FlowAlreadyTerminal,
        Replayed,
        Replayed,
    ]
    assert [await flow.states() for flow in flows] == ["a:f d:wc", "a:f d:k", "a:w d:wc"][::-1]
    summaries = await db.fetch("SELECT flow_id, public_flow_state FROM ff.flow_summary")
    assert {
        row["public_flow_state"] for row in summaries if row["flow_id"] == flows[0].flow_id
    } <= {"open"}


async def test_an_unknown_member_of_an_unknown_flow(ff_engine: Engine) -> None:
    [answer] = await ff_engine.replay_executions([ExecutionId(3, uuid4())])

    assert isinstance(answer, NotFound)
