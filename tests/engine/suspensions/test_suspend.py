"""active → suspended: the holder lets go, and what resumes the execution is stored."""

from datetime import timedelta
from uuid import uuid4

import msgspec
import pytest

from flowfabric.conditions import (
    AllConditions,
    AnyCondition,
    CountOf,
    OperatorOnly,
    Single,
    TimeoutOnly,
    encode_condition,
)
from flowfabric.db.rows import Connection
from flowfabric.db.steps import stepped
from flowfabric.engine.engine import Engine
from flowfabric.engine.keys.rotate_waitpoint_hmac_secret_all import rotate_waitpoint_hmac_secret_all
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.end_parked_members import end_parked_members
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.engine.suspensions.observe_signals import observe_signals
from flowfabric.engine.suspensions.send_signal import NewSignal
from flowfabric.engine.suspensions.suspend_by_triple import suspend_by_triple
from flowfabric.engine.suspensions.suspension import (
    Fresh,
    NothingToSuspendFor,
    ResumePolicy,
    SatisfiedAlready,
    Suspended,
    Suspension,
    UsePending,
)
from flowfabric.engine.suspensions.try_suspend import try_suspend
from flowfabric.errors import AlreadySuspended, ExecutionNotActive, NotFound, StaleLease
from flowfabric.ids import ExecutionId
from flowfabric.policy import FixedBackoff
from flowfabric.states import SignalEffect, SuspensionReason, TimeoutBehavior
from flowfabric.testing import Clock
from flowfabric.tokens import sign_token
from tests import given
from tests.engine.flows.graphs import submitted
from tests.engine.suspensions import parked
from tests.engine.suspensions.parked import ask, deliver, handler, later, pending, suspend_all


@pytest.fixture(autouse=True)
async def key(db: Connection, clock: Clock) -> None:
    await parked.keyed(db)


# What is written.


async def test_the_lease_is_given_up_and_the_suspension_stored(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db)
    began = await clock.now_ms()
    await clock.advance(5)
    fresh, timeout = Fresh(waitpoint_key="a"), await later(clock, 60)
    policy = ResumePolicy(resume_delay=2)

    [answer] = await suspend_all(
        db,
        [
            ask(
                lease,
                bindings=(fresh,),
                condition=Single("a", "go"),
                timeout_at=timeout,
                timeout_behavior=TimeoutBehavior.EXPIRE,
                resume_policy=policy,
                continuation_metadata_pointer="s3://x",
                detail="waits for Ann",
            )
        ],
    )

    now = await clock.now_ms()
    token = sign_token("k1", bytes.fromhex(parked.SECRET), lease.execution_id, fresh.waitpoint_id)
    assert isinstance(answer, Suspended)
    assert [(each.waitpoint_id, each.waitpoint_key, each.token) for each in answer.waitpoints] == [
        (fresh.waitpoint_id, "a", token)
    ]
    assert not answer.repeated
    stored = await parked.suspension(db, lease.execution_id)
    assert stored == stored | {
        "suspension_id": answer.suspension_id,
        "attempt_index": 0,
        "suspended_at_ms": now,
        "timeout_at_ms": now + 60_000,
        "timeout_behavior": "expire",
        "reason_code": "waiting_for_signal",
        "requested_by": "worker",
        "continuation_metadata_pointer": "s3://x",
        "keeps_waitpoints": False,
        "awaits_signals": [],
        "awaits_joins": [],
        "satisfied_at_ms": None,
        "closed_at_ms": None,
        "close_reason": None,
        "closer_signal_id": None,
        "all_satisfier_signals": None,
    }
    stored_condition = msgspec.json.decode(stored["condition"])
    assert stored_condition == msgspec.json.decode(encode_condition(Single("a", "go")))
    assert msgspec.json.decode(stored["resume_policy"])["resume_delay_ms"] == 2000
    [waitpoint] = await parked.waitpoints(db, lease.execution_id)
    assert waitpoint == waitpoint | {
        "state": "active",
        "suspension_id": answer.suspension_id,
        "attempt_index": 0,
        "created_at_ms": now,
        "activated_at_ms": now,
        "expires_at_ms": now + 60_000,
        "required_signal_names": ["go"],
        "token": token.reveal(),
        "token_kid": "k1",
        "signals": "[]",
        "signal_count": 0,
        "closed_at_ms": None,
    }
    row = await given.row(db, lease.execution_id)
    assert row == row | {
        "blocking_detail": "waits for Ann",
        "lease_expires_at_ms": None,
        "worker_instance_id": None,
        "resume_pending": False,
        "last_mutation_at_ms": now,
    }
    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt == attempt | {
        "outcome": "suspended",
        "started_at_ms": began,
        "ended_at_ms": now,
        "lease_id": lease.lease_id,
    }
    events = await given.lease_events(db, lease.execution_id)
    assert events == [("acquired", None), ("revoked", "suspended")]
    assert await given.completion_events(db, lease.execution_id) == []
    assert await parked.broken(db) == []


@pytest.mark.parametrize(
    ("reason", "blocking"),
    [
        ("waiting_for_signal", "waiting_for_signal"),
        ("waiting_for_approval", "waiting_for_approval"),
        ("waiting_for_callback", "waiting_for_callback"),
        ("waiting_for_tool_result", "waiting_for_tool_result"),
        ("waiting_for_operator_review", "paused_by_operator"),
        ("manual_pause", "paused_by_operator"),
        ("paused_by_policy", "paused_by_policy"),
        ("paused_by_budget", "waiting_for_budget"),
        ("step_boundary", "waiting_for_signal"),
    ],
)
async def test_the_reason_says_what_the_execution_waits_for(
    db: Connection, reason: str, blocking: str
) -> None:
    held = await parked.parked(db, reason=SuspensionReason(reason))

    state = "suspended/not_applicable/{}/none/attempt_interrupted → suspended"
    assert await given.standing(db, held.id) == state.format(blocking)
    assert (await parked.suspension(db, held.id))["reason_code"] == reason


async def test_the_old_holder_is_refused_everywhere(db: Connection) -> None:
    held = await parked.parked(db)

    for answers in (
        await renew(db, [held.lease], ttl=30),
        await complete(db, [Completion(held.lease, b"late")]),
        await release(db, [held.lease]),
    ):
        assert [type(answer) for answer in answers] == [ExecutionNotActive]
    [again] = await suspend_all(db, [ask(held.lease)])
    assert isinstance(again, AlreadySuspended)
    assert await claim(db, given.OTHER, ttl=30) == []


async def test_each_waitpoint_has_its_own_key_token_and_names(db: Connection) -> None:
    lease = await given.claimed(db)
    bindings = tuple(Fresh(waitpoint_key=each) for each in "abc")
    condition = AllConditions((Single("a", "go"), CountOf(2, ("b", "c", "a"), "waitpoints", "up")))

    held = await parked.suspended(db, ask(lease, bindings=bindings, condition=condition))

    details = held.answer.waitpoints
    assert [each.waitpoint_key for each in details] == ["a", "b", "c"]
    assert len({each.token.reveal() for each in details}) == 3
    stored = await parked.waitpoints(db, lease.execution_id)
    assert [each["required_signal_names"] for each in stored] == [["go", "up"], ["up"], ["up"]]


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        (OperatorOnly(), ["__operator_only__"]),
        (TimeoutOnly(), ["__timeout_only__"]),
        (Single("approval"), []),
    ],
)
async def test_a_condition_that_no_name_satisfies_says_so(
    db: Connection, clock: Clock, condition: OperatorOnly, names: list[str]
) -> None:
    held = await parked.parked(db, condition=condition, timeout_at=await later(clock, 9))

    [waitpoint] = await parked.waitpoints(db, held.id)
    assert waitpoint["required_signal_names"] == names


async def test_hundreds_are_suspended_by_a_constant_number_of_statements(
    db: Connection, ff_engine: Engine
) -> None:
    for _ in range(100):
        await given.created(db)
    leases = [each.lease for each in await claim(db, given.WORKER, ttl=30, limit=100)]
    seen: list[str] = []

    async def note(_conn: Connection, statement: str) -> None:
        seen.append(statement)

    with stepped(note):
        answers = await suspend_all(db, [ask(lease, "k") for lease in leases])

    assert {type(answer) for answer in answers} == {Suspended}
    assert [answer.execution_id for answer in answers] == [each.execution_id for each in leases]
    assert len(seen) == 6, seen
    assert await parked.broken(db) == []


# Pending waitpoints.


async def test_a_pending_waitpoint_keeps_its_token_although_the_key_was_rotated(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db)
    waitpoint = await pending(db, lease, "a")
    made = await clock.now_ms()
    async with db.transaction():
        await rotate_waitpoint_hmac_secret_all(db, "k2", "ab" * 32, grace=3600)
    await clock.advance(5)
    bindings = (UsePending(waitpoint_id=waitpoint.waitpoint_id), Fresh(waitpoint_key="b"))
    condition = AllConditions((Single("a"), Single("b")))

    held = await parked.suspended(db, ask(lease, bindings=bindings, condition=condition))

    first, second = held.answer.waitpoints
    assert (first.waitpoint_id, first.token) == (waitpoint.waitpoint_id, waitpoint.token)
    assert second.token.reveal().startswith("k2:")
    stored, _ = await parked.waitpoints(db, held.id)
    assert stored == stored | {
        "state": "active",
        "created_at_ms": made,
        "activated_at_ms": made + 5000,
        "expires_at_ms": None,
        "token_kid": "k1",
    }


async def test_signals_that_were_buffered_count(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    waitpoint = await pending(db, lease, "a")
    effect = await deliver(db, lease.execution_id, waitpoint, "go")
    assert effect is SignalEffect.BUFFERED_FOR_PENDING_WAITPOINT
    both = AllConditions((Single("a", "go"), Single("a", "stop")))
    bound = (UsePending(waitpoint_id=waitpoint.waitpoint_id),)

    held = await parked.suspended(db, ask(lease, bindings=bound, condition=both))
    effect = await deliver(db, held.id, waitpoint, "stop")

    assert effect is SignalEffect.RESUME_CONDITION_SATISFIED
    assert await given.public_state(db, held.id) == "resumable"
    lease = await parked.taken_up(db, held.id)
    assert [each.signal_name for each in await observe_signals(db, lease)] == ["go", "stop"]


async def test_buffered_signals_that_satisfy_the_condition_leave_the_lease_with_its_holder(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db)
    waitpoint = await pending(db, lease, "a")
    await deliver(db, lease.execution_id, waitpoint, "go", payload=b"yes")
    await clock.advance(1)
    before = await given.row(db, lease.execution_id)
    request = ask(
        lease, bindings=(UsePending(waitpoint_id=waitpoint.waitpoint_id),), condition=Single("a")
    )

    [answer] = await suspend_all(db, [request])

    assert isinstance(answer, SatisfiedAlready)
    assert [each.token for each in answer.waitpoints] == [waitpoint.token]
    assert await given.row(db, lease.execution_id) == before
    assert before["public_state"] == "active"
    assert await parked.closed(db, lease.execution_id) == ("resumed", {"resumed"})
    stored, now = await parked.suspension(db, lease.execution_id), await clock.now_ms()
    assert (stored["satisfied_at_ms"], stored["closed_at_ms"]) == (now, now)
    [signal] = await observe_signals(db, lease)
    assert (signal.signal_name, signal.payload) == ("go", b"yes")
    assert stored["closer_signal_id"] == signal.signal_id
    assert await given.lease_events(db, lease.execution_id) == [("acquired", None)]
    [done] = await complete(db, [Completion(lease, b"ok")])
    assert not isinstance(done, Exception)
    assert await parked.broken(db) == []


# Handlers.


async def test_a_handler_waits_for_signals_of_its_inbox_and_a_timeout(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db)

    held = await parked.suspended(
        db, handler(lease, "paid", "cancelled", timeout_at=await later(clock, 60))
    )

    stored = await parked.suspension(db, held.id)
    assert stored == stored | {
        "awaits_signals": ["paid", "cancelled"],
        "awaits_joins": [],
        "keeps_waitpoints": True,
        "timeout_behavior": "auto_resume_with_timeout_signal",
    }
    assert held.answer.waitpoints == ()


async def test_a_handler_needs_no_key_that_signs(db: Connection) -> None:
    await db.execute("DELETE FROM ff.waitpoint_hmac")

    assert (await parked.suspended(db, handler(await given.claimed(db), "go"))).answer


async def test_a_handler_whose_inbox_has_grown_is_not_suspended(
    db: Connection, ff_engine: Engine
) -> None:
    lease = await given.claimed(db)
    await ff_engine.send_signal(NewSignal(execution_id=lease.execution_id, signal_name="other"))
    before = await given.everything(db)

    answers = [
        (await suspend_all(db, [handler(lease, "go", signals_read=read)]))[0] for read in (0, None)
    ]

    assert answers == [NothingToSuspendFor(execution_id=lease.execution_id)] * 2
    assert await given.everything(db) == before
    await parked.suspended(db, handler(lease, "go", signals_read=1))


async def test_a_handler_that_waits_for_no_signal_does_not_look_at_its_inbox(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    lease = await given.claimed(db)
    await ff_engine.send_signal(NewSignal(execution_id=lease.execution_id, signal_name="other"))

    await parked.suspended(
        db, handler(lease, condition=TimeoutOnly(), timeout_at=await later(clock, 9))
    )


async def test_a_handler_keeps_its_waitpoints(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    waitpoint = await pending(db, lease, "a", expires_in=3600)
    request = handler(
        lease,
        "paid",
        bindings=(UsePending(waitpoint_id=waitpoint.waitpoint_id),),
        condition=AnyCondition((Single("a", "go"),)),
        timeout_at=await later(clock, 60),
    )

    held = await parked.suspended(db, request)
    [active] = await parked.waitpoints(db, held.id)
    assert (active["state"], active["expires_at_ms"]) == (
        "active",
        await clock.now_ms() + 3_600_000,
    )
    await deliver(db, held.id, waitpoint, "go")

    [again] = await parked.waitpoints(db, held.id)
    assert again == again | {
        "state": "pending",
        "suspension_id": None,
        "activated_at_ms": None,
        "expires_at_ms": active["expires_at_ms"],
        "signal_count": 1,
        "closed_at_ms": None,
    }
    before = await given.everything(db)
    lease = await parked.taken_up(db, held.id)
    [satisfied] = await suspend_all(db, [msgspec.structs.replace(request, lease=lease)])
    assert satisfied == NothingToSuspendFor(execution_id=held.id)
    assert len(await given.everything(db)) == len(before) + 1  # the lease and its event, no ready
    assert await parked.broken(db) == []


async def test_a_handler_in_a_later_attempt_uses_the_waitpoint_of_an_earlier_one(
    db: Connection,
) -> None:
    policy = given.retrying(backoff=FixedBackoff(delay=0))
    lease = await given.claimed(db, policy=policy)
    waitpoint = await pending(db, lease, "a")
    await fail(db, [Failure(lease=lease, reason="boom")])
    [task] = await claim(db, given.WORKER, ttl=30)
    assert task.lease.attempt_index == 1
    bound = (UsePending(waitpoint_id=waitpoint.waitpoint_id),)

    held = await parked.suspended(
        db, handler(task.lease, bindings=bound, condition=AnyCondition((Single("a"),)))
    )

    [stored] = await parked.waitpoints(db, held.id)
    assert (stored["state"], stored["attempt_index"]) == ("active", 1)


# Many, and thin forms.


async def test_a_refusal_does_not_spoil_its_neighbours(db: Connection) -> None:
    leases = [await given.claimed(db) for _ in range(3)]
    missing = msgspec.structs.replace(leases[0], execution_id=ExecutionId.mint())
    stale = msgspec.structs.replace(leases[1], lease_id=uuid4())

    answers = await suspend_all(db, [ask(each) for each in (leases[0], missing, stale, leases[2])])

    assert [type(each) for each in answers] == [Suspended, NotFound, StaleLease, Suspended]
    assert await given.public_state(db, leases[1].execution_id) == "active"
    assert await suspend_all(db, []) == []


async def test_a_lease_with_numbers_that_no_column_has_is_refused_alone(db: Connection) -> None:
    lease = await given.claimed(db)
    absurd = msgspec.structs.replace(lease, execution_id=ExecutionId(10**6, uuid4()))
    late = msgspec.structs.replace(lease, lease_epoch=2**70)

    answers = await suspend_all(db, [ask(absurd), ask(late), ask(lease)])

    assert [type(each) for each in answers] == [NotFound, StaleLease, Suspended]


async def test_of_two_requests_for_one_execution_the_second_comes_after_the_first(
    db: Connection,
) -> None:
    lease = await given.claimed(db)
    first = ask(lease)

    answers = await suspend_all(db, [first, ask(lease), first])

    assert isinstance(answers[0], Suspended)
    assert isinstance(answers[1], AlreadySuspended)
    assert answers[2] == msgspec.structs.replace(answers[0], repeated=True)


async def test_one_is_suspended_or_the_refusal_raised(db: Connection) -> None:
    lease = await given.claimed(db)

    async with db.transaction():
        answer = await try_suspend(db, ask(lease))

    assert isinstance(answer, Suspended)
    with pytest.raises(AlreadySuspended):
        async with db.transaction():
            await try_suspend(db, ask(lease))


async def test_one_is_suspended_by_the_triple_of_its_lease(db: Connection) -> None:
    lease = await given.claimed(db)
    wanted = Suspension(bindings=(Fresh(),), condition=Single("a"), idempotency_key="k")
    triple = {"lease_id": lease.lease_id, "lease_epoch": lease.lease_epoch}

    async with db.transaction():
        with pytest.raises(StaleLease):
            await suspend_by_triple(db, lease.execution_id, wanted, **triple, attempt_id=uuid4())
        with pytest.raises(NotFound):
            await suspend_by_triple(
                db, ExecutionId.mint(), wanted, **triple, attempt_id=lease.attempt_id
            )
        answer = await suspend_by_triple(
            db, lease.execution_id, wanted, **triple, attempt_id=lease.attempt_id
        )
        again = await suspend_by_triple(
            db, lease.execution_id, wanted, **triple, attempt_id=lease.attempt_id
        )

    assert isinstance(answer, Suspended)
    assert answer.suspension_id == wanted.suspension_id
    assert again == msgspec.structs.replace(answer, repeated=True)


# A flow that lets nothing start again.


async def test_a_member_of_a_cancelled_flow_ends_instead(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await submitted(ff_engine, "a")
    [task] = await claim(db, given.WORKER, ttl=30)
    await ff_engine.cancel_flow(flow.flow_id, policy="cancel_pending", reason="enough")

    held = await parked.suspended(db, ask(task.lease, timeout_at=await later(clock, 60)))

    assert len(held.answer.waitpoints) == 1
    assert await parked.closed(db, held.id) == ("cancelled", {"cancelled"})
    assert (await parked.suspension(db, held.id))["timeout_at_ms"] is None
    assert await end_parked_members(db, 10) == 1
    assert await given.public_state(db, held.id) == "cancelled"
    await clock.advance(timedelta(hours=1))
    assert await parked.broken(db) == []
