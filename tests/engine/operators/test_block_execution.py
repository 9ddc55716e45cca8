"""runnable ⇄ runnable(blocked): admission holds an execution back, or lets it go again."""

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.cancel import Cancelled
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.operators.block_execution_for_admission import (
    Blocked,
    block_execution_for_admission,
)
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.unblock_execution import Unblocked, unblock_execution
from flowfabric.errors import (
    ExecutionNotActive,
    ExecutionNotEligible,
    NotFound,
    ValidationError,
)
from flowfabric.ids import ExecutionId, attempt_id
from flowfabric.states import BlockingReason, EligibilityState
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases
from tests.engine.controls import (
    NO_DATABASE,
    TERMINAL,
    WAITING,
    Action,
    Another,
    actions,
    bad_actors,
    execution,
    waiting,
)

WAITS = "runnable/eligible_now/waiting_for_worker/none/pending_first_attempt → waiting"
BLOCKS = {
    "waiting_for_budget": ("blocked_by_budget", "rate_limited"),
    "waiting_for_quota": ("blocked_by_quota", "rate_limited"),
    "waiting_for_capable_worker": ("blocked_by_route", "waiting"),
    "paused_by_operator": ("blocked_by_operator", "waiting"),
    "paused_by_policy": ("blocked_by_lane_state", "waiting"),
}
UNBLOCKABLE = [reason for reason in BLOCKS if reason != "paused_by_policy"]
each_block = pytest.mark.parametrize("reason", BLOCKS)
each_unblockable = pytest.mark.parametrize("reason", UNBLOCKABLE)


@each_block
async def test_what_is_held_back_says_by_what_and_is_shown_as_derived(
    db: Connection, clock: Clock, reason: str
) -> None:
    eligibility, public = BLOCKS[reason]
    execution_id = await given.created(db)
    await clock.advance(5)

    answer = await block_execution_for_admission(db, execution_id, reason, detail="why not")

    assert answer == Blocked(
        execution_id=execution_id, eligibility_state=EligibilityState(eligibility)
    )
    assert await given.standing(db, execution_id) == (
        f"runnable/{eligibility}/{reason}/none/pending_first_attempt → {public}"
    )
    stored = await given.row(db, execution_id)
    assert stored["blocking_detail"] == "why not"
    assert stored["last_mutation_at_ms"] == await clock.now_ms()


@each_block
async def test_what_is_held_back_is_not_claimed_and_hides_nothing(
    db: Connection, reason: str
) -> None:
    first = await given.created(db, priority=9)
    second = await given.created(db)

    await block_execution_for_admission(db, first, reason)

    [task] = await claim(db, given.WORKER, ttl=30, limit=10)
    assert task.lease.execution_id == second


async def test_an_operators_pause_leaves_one_event(db: Connection) -> None:
    execution_id = await given.created(db, tags={"cairn.instance_id": "i-7"})

    await block_execution_for_admission(
        db, execution_id, "paused_by_operator", detail="under review", actor="alice"
    )

    assert await actions(db, execution_id) == [
        Action(
            "blocked",
            "alice",
            "under review",
            {
                "old_eligibility_state": "eligible_now",
                "new_eligibility_state": "blocked_by_operator",
            },
        )
    ]
    [event] = await db.fetch("SELECT * FROM ff.operator_event")
    assert event["route_id"] == (await given.row(db, execution_id))["route_id"]
    assert msgspec.json.decode(event["tags"]) == {"cairn.instance_id": "i-7"}


@pytest.mark.parametrize("reason", [word for word in BLOCKS if word != "paused_by_operator"])
async def test_holding_back_for_another_reason_leaves_one_event_too(
    db: Connection, reason: str
) -> None:
    execution_id = await given.created(db)

    await block_execution_for_admission(db, execution_id, reason, actor="alice")

    [told] = await actions(db, execution_id)
    assert (told.event_type, told.actor) == ("blocked", "alice")
    assert await given.lease_events(db, execution_id) == []


async def test_any_detail_can_be_stored(db: Connection) -> None:
    execution_id = await given.created(db)

    await block_execution_for_admission(
        db, execution_id, "paused_by_operator", detail="a\x00b" + "x" * 20_000
    )

    detail = (await given.row(db, execution_id))["blocking_detail"]
    assert detail.startswith("a\N{REPLACEMENT CHARACTER}b")
    assert len(detail.encode()) <= 16 * 1024


@pytest.mark.parametrize("state", WAITING)
async def test_whatever_waits_for_a_worker_can_be_held_back(db: Connection, state: str) -> None:
    execution_id = await execution(db, state)

    answer = await block_execution_for_admission(db, execution_id, "paused_by_operator")

    assert answer.eligibility_state == "blocked_by_operator"


@pytest.mark.parametrize("state", ["delayed", "retrying", "active", "blocked"])
async def test_what_does_not_wait_for_a_worker_cannot_be_held_back(
    db: Connection, state: str
) -> None:
    execution_id = await execution(db, state)
    before = await given.everything(db)

    with pytest.raises(ExecutionNotEligible) as raised:
        await block_execution_for_admission(db, execution_id, "paused_by_operator")

    assert raised.value.public_state == await given.public_state(db, execution_id)
    assert await given.everything(db) == before


@pytest.mark.parametrize("state", TERMINAL)
async def test_what_has_ended_cannot_be_held_back(db: Connection, clock: Clock, state: str) -> None:
    execution_id = await execution(db, state)
    before = await given.everything(db)

    with pytest.raises(ExecutionNotActive) as raised:
        await block_execution_for_admission(db, execution_id, "paused_by_operator")

    stored = await given.row(db, execution_id)
    assert (raised.value.lifecycle_phase, raised.value.terminal_outcome) == (
        "terminal",
        stored["terminal_outcome"],
    )
    assert raised.value.lease_epoch == stored["lease_epoch"]
    assert raised.value.attempt_id == attempt_id(execution_id, 0)
    assert await given.everything(db) == before


async def test_what_is_not_there_can_neither_be_held_back_nor_let_go(db: Connection) -> None:
    missing = ExecutionId.mint()

    with pytest.raises(NotFound):
        await block_execution_for_admission(db, missing, "paused_by_operator")
    with pytest.raises(NotFound):
        await unblock_execution(db, missing)

    assert await actions(db) == []


@all_cases("reason", [*sorted(set(BlockingReason) - set(BLOCKS)), "", "because"])
async def test_what_is_no_reason_to_hold_back_is_refused_before_any_sql(reason: str) -> None:
    with pytest.raises(ValidationError, match="reason") as raised:
        await block_execution_for_admission(NO_DATABASE, ExecutionId.mint(), reason)

    assert raised.value.code == "invalid_blocking_reason"


@bad_actors
async def test_an_actor_that_cannot_be_stored_is_refused_before_any_sql(actor: str) -> None:
    missing = ExecutionId.mint()

    with pytest.raises(ValidationError, match="actor"):
        await block_execution_for_admission(NO_DATABASE, missing, "paused_by_operator", actor=actor)
    with pytest.raises(ValidationError, match="actor"):
        await unblock_execution(NO_DATABASE, missing, actor=actor)


@each_unblockable
async def test_what_is_let_go_is_claimable_again(db: Connection, clock: Clock, reason: str) -> None:
    execution_id = await given.created(db)
    await block_execution_for_admission(db, execution_id, reason, detail="why not")
    await clock.advance(5)

    answer = await unblock_execution(db, execution_id, expected_blocking_reason=reason)

    assert answer == Unblocked(execution_id=execution_id)
    assert await given.standing(db, execution_id) == WAITS
    stored = await given.row(db, execution_id)
    assert stored["blocking_detail"] is None
    assert stored["last_mutation_at_ms"] == await clock.now_ms()
    [task] = await claim(db, given.WORKER, ttl=30)
    assert task.lease.execution_id == execution_id


async def test_lifting_an_operators_pause_leaves_one_event(db: Connection) -> None:
    execution_id = await given.created(db)
    await block_execution_for_admission(db, execution_id, "paused_by_operator", actor="alice")

    await unblock_execution(db, execution_id, actor="bob")

    assert (await actions(db, execution_id))[1:] == [
        Action(
            "unblocked",
            "bob",
            None,
            {
                "old_eligibility_state": "blocked_by_operator",
                "new_eligibility_state": "eligible_now",
            },
        )
    ]


@pytest.mark.parametrize("reason", [word for word in UNBLOCKABLE if word != "paused_by_operator"])
async def test_letting_go_what_admission_held_back_leaves_one_event_too(
    db: Connection, reason: str
) -> None:
    execution_id = await given.created(db)
    await block_execution_for_admission(db, execution_id, reason)

    await unblock_execution(db, execution_id, actor="bob")

    [_, told] = await actions(db, execution_id)
    assert (told.event_type, told.actor) == ("unblocked", "bob")


async def test_what_a_policy_pauses_no_unblock_lets_go(db: Connection) -> None:
    execution_id = await given.created(db)
    await block_execution_for_admission(db, execution_id, "paused_by_policy")
    before = await given.everything(db)

    with pytest.raises(ExecutionNotEligible):
        await unblock_execution(db, execution_id)

    assert await given.everything(db) == before


async def test_what_is_held_back_for_another_reason_stays(db: Connection) -> None:
    execution_id = await given.created(db)
    await block_execution_for_admission(db, execution_id, "waiting_for_quota")
    before = await given.everything(db)

    with pytest.raises(ExecutionNotEligible) as raised:
        await unblock_execution(db, execution_id, expected_blocking_reason="waiting_for_budget")

    assert raised.value.public_state == "rate_limited"
    assert await given.everything(db) == before


@pytest.mark.parametrize("state", ["waiting", "delayed", "retrying", "active", *TERMINAL])
async def test_what_is_not_held_back_cannot_be_let_go(
    db: Connection, clock: Clock, state: str
) -> None:
    execution_id = await execution(db, state)
    before = await given.everything(db)

    with pytest.raises(ExecutionNotEligible):
        await unblock_execution(db, execution_id)

    assert await given.everything(db) == before


async def test_an_expected_reason_that_is_none_is_refused_before_any_sql() -> None:
    with pytest.raises(ValidationError, match="reason 'because'") as raised:
        await unblock_execution(NO_DATABASE, ExecutionId.mint(), expected_blocking_reason="because")

    assert raised.value.code == "invalid_blocking_reason"


@each_block
async def test_what_is_held_back_meets_its_deadline_to_the_millisecond(
    db: Connection, clock: Clock, reason: str
) -> None:
    execution_id = await given.created(db, deadline=60)
    await block_execution_for_admission(db, execution_id, reason)
    await clock.advance(59.999)
    assert await expire_executions(db, limit=10) == 0
    await clock.advance(0.001)

    assert await expire_executions(db, limit=10) == 1

    assert await given.public_state(db, execution_id) == "expired"
    assert await given.completion_events(db, execution_id) == ["expired"]


@each_block
async def test_what_is_held_back_can_be_cancelled(db: Connection, reason: str) -> None:
    execution_id = await given.created(db)
    await block_execution_for_admission(db, execution_id, reason, detail="why not")

    assert await cancel_execution(db, execution_id, reason="no") == Cancelled(
        execution_id=execution_id
    )

    assert (await given.row(db, execution_id))["blocking_detail"] is None
    assert await given.completion_events(db, execution_id) == ["cancelled"]


async def test_a_block_that_waited_for_a_claim_comes_too_late(
    db: Connection, another: Another, ff_engine: Engine
) -> None:
    execution_id = await given.created(db)
    worker = await another()
    async with worker.transaction():
        await claim(worker, given.WORKER, ttl=30)
        blocking = await waiting(
            db, ff_engine.block_execution_for_admission(execution_id, "paused_by_operator")
        )

    with pytest.raises(ExecutionNotEligible):
        await blocking
    assert await given.public_state(db, execution_id) == "active"
    assert await actions(db) == []


async def test_of_two_unblocks_at_once_one_lets_go(
    db: Connection, another: Another, ff_engine: Engine
) -> None:
    execution_id = await given.created(db)
    await block_execution_for_admission(db, execution_id, "paused_by_operator")
    operator = await another()
    async with operator.transaction():
        await unblock_execution(operator, execution_id)
        unblocking = await waiting(db, ff_engine.unblock_execution(execution_id))

    with pytest.raises(ExecutionNotEligible):
        await unblocking
    assert [told.event_type for told in await actions(db)] == ["blocked", "unblocked"]
