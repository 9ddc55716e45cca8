"""What holds after every move, whatever the moves were."""

import random
from typing import Any

import asyncpg
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.expire_attempts import expire_attempts
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.errors import FlowFabricError, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy, FixedBackoff, RetryPolicy, TimeoutPolicy
from flowfabric.states import EligibilityState, LifecyclePhase, TerminalOutcome, derive_public_state
from flowfabric.testing import Clock
from tests import given
from tests.engine.lifecycle.fenced import OPERATIONS
from tests.engine.lifecycle.queued import check_queue

POLICIES = [
    None,
    given.retrying(2, backoff=FixedBackoff(delay=0)),
    given.retrying(1),
    ExecutionPolicy(max_reclaim_count=1),
    ExecutionPolicy(
        timeout_policy=TimeoutPolicy(attempt_timeout=20),
        retry_policy=RetryPolicy(max_retries=1),
    ),
]
SWEEPS = (promote_due, expire_leases, expire_attempts, expire_executions)
MOVES = ["create", "claim", "claim", "hold", "hold", "hold", "sweep", "sweep", "wait", "cancel"]


class Walk:
    """A random life of a few executions, and the leases that were ever given out."""

    def __init__(self, db: Connection, clock: Clock, seed: int) -> None:
        self.db, self.clock, self.chance = db, clock, random.Random(seed)
        self.leases: list[Lease] = []
        self.rows: dict[Any, dict[str, Any]] = {}

    async def step(self) -> None:
        match self.chance.choice(MOVES):
            case "create":
                await create_execution(self.db, [self.new()])
            case "claim":
                tasks = await claim(
                    self.db,
                    self.chance.choice((given.WORKER, given.OTHER)),
                    ttl=self.chance.choice((5, 60)),
                    limit=self.chance.choice((1, 3)),
                )
                self.leases += [task.lease for task in tasks]
            case "hold" if self.leases:
                await self.hold()
            case "sweep":
                await self.chance.choice(SWEEPS)(self.db, self.chance.choice((1, 10)))
            case "wait":
                await self.clock.advance(self.chance.choice((0.5, 3, 10)))
            case "cancel" if self.rows and self.chance.random() < 0.3:
                await self.cancel()
            case _:
                pass

    def new(self) -> Any:
        return given.new(
            policy=self.chance.choice(POLICIES),
            delay=self.chance.choice((None, None, 4)),
            deadline=self.chance.choice((None, None, None, 30)),
            priority=self.chance.randrange(3),
        )

    async def hold(self) -> None:
        """A holder acts; only the newest lease that still runs may change anything."""
        lease = self.chance.choice(self.leases[-6:])
        operation = OPERATIONS[self.chance.choice(list(OPERATIONS))]
        before = await given.row(self.db, lease.execution_id)
        current = (
            before["lifecycle_phase"] == "active"
            and before["lease_id"] == lease.lease_id
            and before["lease_epoch"] == lease.lease_epoch
            and before["lease_expires_at_ms"] > await self.clock.now_ms()
        )
        [answer] = await operation(self.db, [lease])
        changed = not (isinstance(answer, FlowFabricError) or getattr(answer, "repeated", False))
        assert changed is current
        if not current:
            assert await given.row(self.db, lease.execution_id) == before

    async def cancel(self) -> None:
        partition_key, uuid = self.chance.choice(list(self.rows))
        try:
            await cancel_execution(self.db, ExecutionId(partition_key, uuid), reason="walk")
        except ValidationError:
            assert self.rows[partition_key, uuid]["lifecycle_phase"] == "terminal"

    async def check(self) -> None:
        now = {
            (row["partition_key"], row["execution_id"]): dict(row)
            for row in await self.db.fetch("SELECT * FROM ff.execution")
        }
        ended = await self.db.fetch(
            "SELECT partition_key, execution_id, outcome FROM ff.completion_event"
        )
        told = sorted((e["partition_key"], e["execution_id"], e["outcome"]) for e in ended)
        assert told == sorted(
            (*key, row["terminal_outcome"])
            for key, row in now.items()
            if row["lifecycle_phase"] == "terminal"
        )
        await self.check_histories(now)
        await check_queue(self.db)
        for key, row in now.items():
            check_row(row)
            if key in self.rows:
                check_move(self.rows[key], row)
        self.rows = now

    async def check_histories(self, now: dict[Any, dict[str, Any]]) -> None:
        holders: dict[Any, Any] = {}
        for event in await self.db.fetch("SELECT * FROM ff.lease_event ORDER BY event_id"):
            key = (event["partition_key"], event["execution_id"])
            if event["event_type"] == "acquired":
                assert key not in holders
                holders[key] = event["lease_id"]
            elif event["event_type"] == "renewed":
                assert holders[key] == event["lease_id"]
            else:
                assert holders.pop(key) == event["lease_id"]
        assert holders == {
            key: row["lease_id"] for key, row in now.items() if row["lifecycle_phase"] == "active"
        }
        indexes: dict[Any, set[int]] = {key: set() for key in now}
        for attempt in await self.db.fetch("SELECT * FROM ff.attempt"):
            indexes[attempt["partition_key"], attempt["execution_id"]].add(attempt["attempt_index"])
        for key, row in now.items():
            if row["lifecycle_phase"] == "active":
                indexes[key].add(row["attempt_index"])
            assert indexes[key] == set(range(row["total_attempt_count"]))


def check_row(row: dict[str, Any]) -> None:
    assert row["public_state"] == derive_public_state(
        LifecyclePhase(row["lifecycle_phase"]),
        EligibilityState(row["eligibility_state"]),
        TerminalOutcome(row["terminal_outcome"]),
        resume_pending=row["resume_pending"],
    )
    active = row["lifecycle_phase"] == "active"
    assert (row["ownership_state"] == "leased") is active
    assert (row["lease_expires_at_ms"] is not None) is active
    assert (row["worker_instance_id"] is not None) is active
    assert (row["eligibility_state"] == "not_eligible_until_time") is (
        row["delay_until_ms"] is not None
    )
    assert (row["started_at_ms"] is not None) is (row["total_attempt_count"] > 0)


def check_move(before: dict[str, Any], after: dict[str, Any]) -> None:
    if before["lifecycle_phase"] == "terminal":
        assert after == before
    for counter in (
        "lease_epoch",
        "attempt_index",
        "total_attempt_count",
        "retry_count",
        "lease_reclaim_count",
        "last_mutation_at_ms",
    ):
        assert after[counter] >= before[counter]
    if before["started_at_ms"] is not None:
        assert after["started_at_ms"] == before["started_at_ms"]
    for constant in ("created_at_ms", "route_id", "deadline_at_ms", "priority", "tags"):
        assert after[constant] == before[constant]


@pytest.mark.parametrize("seed", range(2))
async def test_the_invariants_hold_after_every_step_of_a_random_walk(
    db: Connection, clock: Clock, seed: int
) -> None:
    walk = Walk(db, clock, seed)
    for _ in range(300):
        await walk.step()
        await walk.check()

    outcomes = {row["terminal_outcome"] for row in walk.rows.values()}
    assert len(outcomes) >= 4, "the walk was too short to prove anything"


@pytest.mark.parametrize("resume_pending", [True, False])
@pytest.mark.parametrize(
    "eligibility", [e for e in EligibilityState if e is not EligibilityState.NOT_APPLICABLE]
)
async def test_the_stored_public_state_is_the_derived_one(
    db: Connection, clock: Clock, eligibility: EligibilityState, resume_pending: bool
) -> None:
    execution_id = await given.created(db, delay=60)
    # Rooms that block and resume do not exist yet; the columns are the contract.
    await db.execute(
        """UPDATE ff.exec_core SET eligibility_state = $1::text, resume_pending = $2,
                  delay_until_ms = CASE WHEN $1::text = 'not_eligible_until_time' THEN 1 END""",
        eligibility.value,
        resume_pending,
    )

    assert await given.public_state(db, execution_id) is derive_public_state(
        LifecyclePhase.RUNNABLE, eligibility, TerminalOutcome.NONE, resume_pending=resume_pending
    )


async def test_what_may_resume_is_resumable_until_it_is_claimed(db: Connection) -> None:
    lease = await given.claimed(db)
    await OPERATIONS["release"](db, [lease])
    await db.execute("UPDATE ff.exec_core SET resume_pending = true")
    assert await given.public_state(db, lease.execution_id) == "resumable"

    [task] = await claim(db, given.WORKER, ttl=30)
    await OPERATIONS["release"](db, [task.lease])

    assert task.lease.attempt_index == lease.attempt_index
    assert await given.public_state(db, lease.execution_id) == "waiting"


@pytest.mark.parametrize(
    "change",
    [
        "lifecycle_phase = 'submitted'",
        "lifecycle_phase = 'cancelled'",
        "lifecycle_phase = 'suspended'",
        "lifecycle_phase = 'terminal'",
        "lifecycle_phase = 'active'",
        "lifecycle_phase = 'active', eligibility_state = 'not_applicable',"
        " attempt_state = 'running_attempt'",
        "lifecycle_phase = 'terminal', eligibility_state = 'not_applicable'",
        "lifecycle_phase = 'terminal', eligibility_state = 'not_applicable',"
        " terminal_outcome = 'success'",
        "terminal_outcome = 'success'",
        "terminal_outcome = 'completed'",
        "terminal_at_ms = 1",
        "eligibility_state = 'pending_claim'",
        "eligibility_state = 'cancelled'",
        "eligibility_state = 'not_applicable'",
        "eligibility_state = 'not_eligible_until_time'",
        "delay_until_ms = 1",
        "blocking_reason = 'because'",
        "attempt_state = 'running'",
        "attempt_state = 'pending'",
        "attempt_state = 'running_attempt'",
        "attempt_type = 'fallback'",
        "lease_expires_at_ms = 1",
        "worker_id = 'w'",
        "worker_instance_id = 'w-1'",
        "priority = -1",
        "priority = 9001",
        "public_state = 'waiting'",
        "ownership_state = 'leased'",
    ],
)
async def test_a_state_that_cannot_be_cannot_be_stored(db: Connection, change: str) -> None:
    execution_id = await given.created(db)
    before = await given.row(db, execution_id)

    with pytest.raises(asyncpg.PostgresError):
        await db.execute(f"UPDATE ff.exec_core SET {change}")

    assert await given.row(db, execution_id) == before


@pytest.mark.parametrize(
    "change",
    [
        "ff.attempt SET outcome = 'failure'",
        "ff.attempt SET outcome = NULL",
        "ff.attempt SET attempt_type = 'fallback'",
        "ff.completion_event SET outcome = 'completed'",
        "ff.completion_event SET outcome = 'none'",
        "ff.lease_event SET event_type = 'released'",
        "ff.lease_event SET reason = 'because'",
        "ff.route SET lane_id = ''",
        "ff.route SET lane_id = 'größe'",
        "ff.exec_tag SET tag_key = 'Shop.tenant'",
    ],
)
async def test_a_word_that_is_not_in_the_alphabet_cannot_be_stored(
    db: Connection, change: str
) -> None:
    lease = await given.claimed(db, tags={"a.b": "c"})
    await OPERATIONS["complete"](db, [lease])
    before = await given.everything(db)

    with pytest.raises(asyncpg.PostgresError):
        await db.execute(f"UPDATE {change}")

    assert await given.everything(db) == before
