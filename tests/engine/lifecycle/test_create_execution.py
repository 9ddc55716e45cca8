"""absent → runnable."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.create_execution import Created, Duplicate, create_execution
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId, uuid_partition
from flowfabric.instants import epoch_ms, instant
from flowfabric.policy import ExecutionPolicy, TimeoutPolicy
from flowfabric.states import PublicState
from flowfabric.testing import Clock
from tests import given

Another = Callable[[], Awaitable[Connection]]
WAITING = "runnable/eligible_now/waiting_for_worker/none/pending_first_attempt → waiting"
DELAYED = "runnable/not_eligible_until_time/waiting_for_delay/none/pending_first_attempt → delayed"


async def test_a_new_execution_waits_for_a_worker(db: Connection, clock: Clock) -> None:
    new = given.new()

    [answer] = await create_execution(db, [new])

    assert answer == Created(execution_id=new.execution_id, public_state=PublicState.WAITING)
    assert await given.standing(db, new.execution_id) == WAITING
    stored, now = await given.row(db, new.execution_id), await clock.now_ms()
    assert stored == stored | {
        "attempt_index": 0,
        "total_attempt_count": 0,
        "retry_count": 0,
        "replay_count": 0,
        "lease_reclaim_count": 0,
        "lease_epoch": 0,
        "lease_id": None,
        "lease_expires_at_ms": None,
        "worker_id": None,
        "worker_instance_id": None,
        "ownership_state": "unowned",
        "priority": 0,
        "created_at_ms": now,
        "last_mutation_at_ms": now,
        "started_at_ms": None,
        "terminal_at_ms": None,
        "delay_until_ms": None,
        "deadline_at_ms": None,
        "resume_pending": False,
    }
    assert await given.lease_events(db, new.execution_id) == []
    assert await given.completion_events(db, new.execution_id) == []
    assert await given.attempts(db, new.execution_id) == []


async def test_a_new_execution_can_be_claimed_without_further_ado(db: Connection) -> None:
    execution_id = await given.created(db, input_payload=b'{"n": 1}', payload_encoding="json")

    [claimed] = await claim(db, given.WORKER, ttl=30)

    assert claimed.lease.execution_id == execution_id
    assert (claimed.input_payload, claimed.payload_encoding) == (b'{"n": 1}', "json")


async def test_an_execution_for_later_is_delayed(db: Connection, clock: Clock) -> None:
    new = given.new(delay=60)

    [answer] = await create_execution(db, [new])

    assert answer == Created(execution_id=new.execution_id, public_state=PublicState.DELAYED)
    assert await given.standing(db, new.execution_id) == DELAYED
    stored = await given.row(db, new.execution_id)
    assert stored["delay_until_ms"] == await clock.now_ms() + 60_000
    assert await given.lease_events(db, new.execution_id) == []
    assert await given.completion_events(db, new.execution_id) == []


@pytest.mark.parametrize("delay", [1.5, timedelta(seconds=1.5)])
async def test_a_delay_counts_from_the_databases_clock(
    db: Connection, clock: Clock, delay: float | timedelta
) -> None:
    await clock.advance(timedelta(days=-400))

    execution_id = await given.created(db, delay=delay)

    assert (await given.row(db, execution_id))["delay_until_ms"] == await clock.now_ms() + 1500


async def test_a_moment_wins_over_a_delay_and_over_the_policys_moment(
    db: Connection, clock: Clock
) -> None:
    now = await clock.now_ms()
    policy = ExecutionPolicy(delay_until=instant(now + 5000))
    moment = instant(now + 7000)

    both = await given.created(db, delay_until=moment, delay=1, policy=policy)
    relative = await given.created(db, delay=1, policy=policy)
    frozen = await given.created(db, policy=policy)

    assert (await given.row(db, both))["delay_until_ms"] == now + 7000
    assert (await given.row(db, relative))["delay_until_ms"] == now + 1000
    assert (await given.row(db, frozen))["delay_until_ms"] == now + 5000


@pytest.mark.parametrize("seconds", [-3600, -0.001])
async def test_a_delay_in_the_past_is_refused(db: Connection, clock: Clock, seconds: float) -> None:
    past = await clock.now() + timedelta(seconds=seconds)

    with pytest.raises(ValidationError, match=f"delay {seconds} must not be negative"):
        given.new(delay=seconds)
    with pytest.raises(ValidationError, match=r"delay_until .* is in the past"):
        await given.created(db, delay_until=past)
    with pytest.raises(ValidationError, match=r"delay_until .* is in the past"):
        await given.created(db, policy=ExecutionPolicy(delay_until=past))

    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 0


async def test_a_create_that_is_repeated_after_its_delay_finds_its_execution(
    db: Connection, clock: Clock
) -> None:
    new = given.new(delay_until=await clock.now() + timedelta(seconds=1))
    await create_execution(db, [new])
    await clock.advance(timedelta(seconds=2))

    [answer] = await create_execution(db, [new])

    assert isinstance(answer, Duplicate)


async def test_a_delay_that_ends_now_is_no_delay(db: Connection, clock: Clock) -> None:
    relative = await given.created(db, delay=0)
    absolute = await given.created(db, delay_until=await clock.now())

    for execution_id in (relative, absolute):
        assert await given.standing(db, execution_id) == WAITING
        assert (await given.row(db, execution_id))["delay_until_ms"] is None


async def test_a_delay_of_one_millisecond_is_a_delay(db: Connection, clock: Clock) -> None:
    execution_id = await given.created(db, delay_until=instant(await clock.now_ms() + 1))

    assert await given.standing(db, execution_id) == DELAYED


@pytest.mark.parametrize(
    ("given_priority", "stored"), [(-5, 0), (0, 0), (1, 1), (9000, 9000), (9001, 9000)]
)
async def test_a_priority_is_clamped(db: Connection, given_priority: int, stored: int) -> None:
    execution_id = await given.created(db, priority=given_priority)

    assert (await given.row(db, execution_id))["priority"] == stored


async def test_a_deadline_comes_from_the_argument_before_the_policy(
    db: Connection, clock: Clock
) -> None:
    now = await clock.now_ms()
    policy = ExecutionPolicy(timeout_policy=TimeoutPolicy(execution_deadline=9))

    expected = {
        await given.created(db): None,
        await given.created(db, policy=policy): now + 9000,
        await given.created(db, policy=policy, deadline=5): now + 5000,
        await given.created(db, policy=policy, execution_deadline_at=instant(now + 7)): now + 7,
        await given.created(db, deadline=timedelta(seconds=2)): now + 2000,
    }

    for execution_id, deadline in expected.items():
        assert (await given.row(db, execution_id))["deadline_at_ms"] == deadline


async def test_a_delay_leaves_the_deadline_alone(db: Connection, clock: Clock) -> None:
    execution_id = await given.created(db, delay=60, deadline=90)

    stored, now = await given.row(db, execution_id), await clock.now_ms()
    assert (stored["delay_until_ms"], stored["deadline_at_ms"]) == (now + 60_000, now + 90_000)


async def test_the_callers_now_replaces_the_clock(db: Connection) -> None:
    now = datetime(2031, 2, 3, tzinfo=UTC)
    new = given.new(delay=10, deadline=20, idempotency_key="once")

    await create_execution(db, [new], now=now)

    stored, at = await given.row(db, new.execution_id), epoch_ms(now)
    assert stored == stored | {
        "created_at_ms": at,
        "last_mutation_at_ms": at,
        "delay_until_ms": at + 10_000,
        "deadline_at_ms": at + 20_000,
    }
    expiry = await db.fetchval("SELECT expires_at_ms FROM ff.exec_idempotency")
    assert expiry == at + 24 * 60 * 60 * 1000


async def test_what_is_given_is_stored(db: Connection) -> None:
    policy = given.retrying(2)
    execution_id = await given.created(
        db,
        input_payload=b"\x00\xff",
        payload_encoding="binary",
        creator_identity="alice",
        idempotency_key="k",
        policy=policy,
        tags={"shop.tenant": "acme", "cairn.instance_id": "i-1"},
        required_capabilities=("b", "a", "b"),
        lane_id="mail",
        namespace="tenant",
        execution_kind="send",
    )

    [body] = await db.fetch("SELECT * FROM ff.exec_body")
    [route] = await db.fetch("SELECT * FROM ff.route")
    stored = await given.row(db, execution_id)
    assert body["payload"] == b"\x00\xff"
    assert (body["payload_encoding"], body["creator_identity"]) == ("binary", "alice")
    assert body["idempotency_key"] == "k"
    assert ExecutionPolicy.parse(msgspec.json.decode(body["policy"])) == policy
    assert (route["namespace"], route["lane_id"], route["execution_kind"]) == (
        "tenant",
        "mail",
        "send",
    )
    assert route["required_capabilities"] == ["a", "b"]
    assert stored["route_id"] == route["route_id"]
    assert msgspec.json.decode(stored["tags"]) == {
        "shop.tenant": "acme",
        "cairn.instance_id": "i-1",
    }


async def test_a_lane_is_registered_by_its_first_execution(db: Connection, clock: Clock) -> None:
    await given.created(db, lane_id="mail")
    first = await clock.now_ms()
    await clock.advance(60)

    await given.created(db, lane_id="mail", execution_kind="another")

    [lane] = await db.fetch("SELECT * FROM ff.lane_registry")
    assert tuple(lane)[:4] == ("mail", first, "create_execution", "active")


async def test_a_batch_is_answered_in_its_order(db: Connection) -> None:
    batch = [given.new(execution_kind=f"kind-{n % 3}", delay=n % 2 or None) for n in range(20)]

    answers = await create_execution(db, batch)

    assert [answer.execution_id for answer in answers] == [new.execution_id for new in batch]
    assert [
        isinstance(answer, Created) and answer.public_state is PublicState.DELAYED
        for answer in answers
    ] == [n % 2 == 1 for n in range(20)]


async def test_an_empty_batch_creates_nothing(db: Connection) -> None:
    before = await given.everything(db)

    assert await create_execution(db, []) == []

    assert await given.everything(db) == before


async def test_the_same_id_again_is_a_duplicate_and_changes_nothing(db: Connection) -> None:
    first = given.new(input_payload=b"first", priority=1)
    await create_execution(db, [first])
    before = await given.everything(db)

    [answer] = await create_execution(
        db, [given.new(execution_id=first.execution_id, input_payload=b"second", priority=2)]
    )

    assert answer == Duplicate(execution_id=first.execution_id)
    assert await given.everything(db) == before


async def test_the_same_id_after_its_end_is_still_a_duplicate(db: Connection) -> None:
    lease = await given.claimed(db)
    await complete(db, [Completion(lease)])
    before = await given.everything(db)

    [answer] = await create_execution(db, [given.new(execution_id=lease.execution_id)])

    assert answer == Duplicate(execution_id=lease.execution_id)
    assert await given.everything(db) == before


async def test_any_partition_below_the_count_is_valid_whatever_the_uuid(db: Connection) -> None:
    fresh = ExecutionId.mint().uuid
    elsewhere = (uuid_partition(fresh) + 1) % 256

    execution_id = await given.created(db, execution_id=ExecutionId(elsewhere, fresh))

    assert (await given.row(db, execution_id))["partition_key"] == elsewhere


async def test_one_uuid_in_two_partitions_is_two_executions(db: Connection) -> None:
    fresh = ExecutionId.mint().uuid

    answers = await create_execution(
        db, [given.new(execution_id=ExecutionId(n, fresh)) for n in (7, 8)]
    )

    assert [(type(answer), answer.execution_id) for answer in answers] == [
        (Created, ExecutionId(7, fresh)),
        (Created, ExecutionId(8, fresh)),
    ]


async def test_routes_whose_names_run_together_stay_apart(db: Connection) -> None:
    routes = [
        await db.fetchval("SELECT ff.route_id($1, $2, $3, '{}')", *names)
        for names in (("a", "b", "c\x1fd"), ("a\x1fb", "c", "d"))
    ]

    assert routes[0] != routes[1]


@pytest.mark.parametrize(
    "policy",
    [
        ExecutionPolicy(suspension_policy={"default_timeout_ms": 1000, "timeout_behavior": "fail"}),
        ExecutionPolicy(fallback_policy={"tiers": [{"provider": "p", "model": "m"}]}),
        ExecutionPolicy(stream_policy={"durability_mode": "buffered"}),
        ExecutionPolicy(routing_requirements={"preferred_locality": "eu"}),
    ],
    ids=["suspension", "fallback", "stream", "routing"],
)
async def test_every_part_of_a_policy_is_stored(db: Connection, policy: ExecutionPolicy) -> None:
    await given.created(db, policy=policy)

    stored = await db.fetchval("SELECT policy FROM ff.exec_body")
    assert ExecutionPolicy.parse(msgspec.json.decode(stored)) == policy


async def test_what_the_policys_routing_requires_is_required_of_workers(db: Connection) -> None:
    await given.created(
        db, policy=ExecutionPolicy(routing_requirements={"required_capabilities": ["gpu"]})
    )

    able = msgspec.structs.replace(given.WORKER, capabilities=("gpu",))
    assert await claim(db, given.WORKER, ttl=30) == []
    assert len(await claim(db, able, ttl=30)) == 1


async def test_nothing_of_a_creation_outlives_a_rolled_back_transaction(db: Connection) -> None:
    before = await given.everything(db)
    transaction = db.transaction()
    await transaction.start()
    await given.created(db, idempotency_key="k", tags={"a.b": "c"}, lane_id="new-lane")

    await transaction.rollback()

    assert await given.everything(db) == before


async def test_the_same_ids_in_different_orders_do_not_deadlock(
    db: Connection, another: Another
) -> None:
    await given.created(db)  # its route: the callers must wait for one another's ids only
    low, middle, high = sorted((given.new() for _ in range(3)), key=lambda new: new.execution_id)
    holder, first, second = [await another() for _ in range(3)]
    await given.created(db)  # the route is there: both wait for the execution
    held = holder.transaction()
    await held.start()
    await create_execution(holder, [middle])
    ascending = await given.blocked(db, first, create_execution(first, [low, middle, high]))
    descending = await given.blocked(db, second, create_execution(second, [high, middle, low]))

    await held.rollback()

    answers = [*await ascending, *await descending]
    assert [type(answer) for answer in answers] == [Created] * 3 + [Duplicate] * 3
