"""Every move of an execution is an arrow of the drawn state machine; triggers look at each."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.cancel import Cancellation, cancel
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.delay import DelayRequest, delay
from flowfabric.engine.lifecycle.expire_attempts import expire_attempts
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.progress import progress
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.lifecycle.release_after_trouble import Trouble, release_after_trouble
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.resume_execution import resume_executions
from flowfabric.engine.suspensions.deliver_signal import deliver_signal
from flowfabric.engine.suspensions.expire_suspensions import expire_suspensions
from flowfabric.engine.suspensions.send_signal import NewSignal, send_signals
from flowfabric.engine.suspensions.suspension import ResumePolicy
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy, FixedBackoff, RetryPolicy, TimeoutPolicy
from flowfabric.states import (
    AttemptState,
    EligibilityState,
    LifecyclePhase,
    SuspensionReason,
    TerminalOutcome,
    TimeoutBehavior,
)
from flowfabric.testing import Clock
from tests import given
from tests.engine.suspensions import parked
from tests.test_states import legal
from tests.walls.state_machine import ABSENT, ARROWS, CREATIONS, REMOVAL, drawn, vectors

# The state of an execution is in two tables, and a trigger fires once a statement has written both:
# `look` compares the state that ff.execution shows then with the one that was noted after the
# statement before. The versions of the two rows tell whether the other trigger has looked already.
# `look_at_queue` sees at COMMIT that an execution is queued, or leased under the next epoch,
# exactly while exec_core says that it is claimable.
INSTALL = """
CREATE SCHEMA ff_walls;
CREATE TABLE ff_walls.drawn (row_number integer, start text, finish text);
CREATE TABLE ff_walls.taken (start text, finish text);
CREATE TABLE ff_walls.noted (
    partition_key smallint, execution_id uuid, vector text, lease_epoch bigint,
    started_at_ms bigint, versions text, PRIMARY KEY (partition_key, execution_id));
CREATE FUNCTION ff_walls.current(home smallint, id uuid) RETURNS ff_walls.noted LANGUAGE sql AS $$
    SELECT home, id,
           concat_ws('/', e.lifecycle_phase, e.eligibility_state, e.blocking_reason,
                     e.terminal_outcome, e.attempt_state),
           e.lease_epoch, e.started_at_ms,
           (SELECT concat_ws(' ', xmin, cmin) FROM ff.exec_core
             WHERE (partition_key, execution_id) = (home, id)) || ' and ' || coalesce((
            SELECT concat_ws(' ', xmin, cmin) FROM ff.lease
             WHERE (partition_key, execution_id) = (home, id)), 'no lease')
      FROM ff.execution e WHERE (partition_key, execution_id) = (home, id)
$$;
CREATE FUNCTION ff_walls.look() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    home smallint := CASE WHEN TG_OP = 'DELETE' THEN OLD.partition_key ELSE NEW.partition_key END;
    id uuid := CASE WHEN TG_OP = 'DELETE' THEN OLD.execution_id ELSE NEW.execution_id END;
    was ff_walls.noted;
    found ff_walls.noted := ff_walls.current(home, id);
BEGIN
    SELECT * INTO was FROM ff_walls.noted WHERE (partition_key, execution_id) = (home, id);
    IF was.versions IS NOT DISTINCT FROM found.versions THEN
        RETURN NULL;
    END IF;
    IF found.lease_epoch < was.lease_epoch THEN
        RAISE EXCEPTION 'the epoch went back: % -> %', was.lease_epoch, found.lease_epoch;
    END IF;
    IF found.versions IS NOT NULL AND found.started_at_ms IS DISTINCT FROM was.started_at_ms
       AND was.started_at_ms IS NOT NULL THEN
        RAISE EXCEPTION 'started_at_ms moved: % -> %', was.started_at_ms, found.started_at_ms;
    END IF;
    was.vector := coalesce(was.vector, 'absent');
    found.vector := coalesce(found.vector, 'absent');
    IF NOT EXISTS (SELECT FROM ff_walls.drawn
                    WHERE (start, finish) = (was.vector, found.vector)) THEN
        RAISE EXCEPTION 'undrawn arrow: % -> %', was.vector, found.vector;
    END IF;
    INSERT INTO ff_walls.taken VALUES (was.vector, found.vector);
    DELETE FROM ff_walls.noted WHERE (partition_key, execution_id) = (home, id);
    IF found.versions IS NOT NULL THEN
        INSERT INTO ff_walls.noted SELECT found.*;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER look AFTER INSERT OR UPDATE OR DELETE ON ff.exec_core
    FOR EACH ROW EXECUTE FUNCTION ff_walls.look();
CREATE TRIGGER look AFTER INSERT OR UPDATE OR DELETE ON ff.lease
    FOR EACH ROW EXECUTE FUNCTION ff_walls.look();

CREATE FUNCTION ff_walls.look_at_queue() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    home smallint := CASE WHEN TG_OP = 'DELETE' THEN OLD.partition_key ELSE NEW.partition_key END;
    id uuid := CASE WHEN TG_OP = 'DELETE' THEN OLD.execution_id ELSE NEW.execution_id END;
    claimable text := (SELECT concat_ws(' ', route_id, priority, created_at_ms, deadline_at_ms)
                         FROM ff.exec_core WHERE (partition_key, execution_id) = (home, id)
                          AND eligibility_state = 'eligible_now');
    queued text[] := ARRAY(SELECT concat_ws(' ', route_id, priority, created_at_ms, deadline_at_ms)
                             FROM ff.ready WHERE (partition_key, execution_id) = (home, id));
    leases bigint[] := ARRAY(SELECT l.lease_epoch - e.lease_epoch
                               FROM ff.lease l LEFT JOIN ff.exec_core e
                              USING (partition_key, execution_id)
                              WHERE (partition_key, execution_id) = (home, id));
BEGIN
    IF (CASE WHEN claimable IS NULL THEN queued <> '{}' OR leases <> '{}'
             ELSE (queued <> ARRAY[claimable] OR leases <> '{}')
              AND (queued <> '{}' OR leases <> '{1}') END) THEN
        RAISE EXCEPTION 'claimable as %, queued as %, leased %', claimable, queued, leases;
    END IF;
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER look_at_queue AFTER INSERT OR UPDATE OR DELETE ON ff.exec_core
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ff_walls.look_at_queue();
CREATE CONSTRAINT TRIGGER look_at_queue AFTER INSERT OR UPDATE OR DELETE ON ff.ready
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ff_walls.look_at_queue();
CREATE CONSTRAINT TRIGGER look_at_queue AFTER INSERT OR UPDATE OR DELETE ON ff.lease
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ff_walls.look_at_queue();
"""

WALKED = """
SELECT DISTINCT row_number FROM ff_walls.taken JOIN ff_walls.drawn USING (start, finish)
"""


@pytest.fixture
async def watched(db: Connection) -> Connection:
    """A database in which an undrawn arrow is an error."""
    await db.execute(INSTALL)
    await db.copy_records_to_table("drawn", schema_name="ff_walls", records=drawn())
    return db


# The drawing itself.


def test_every_drawn_vector_is_one_that_the_schema_allows() -> None:
    for vector in vectors():
        assert legal(
            (
                LifecyclePhase(vector.phase),
                EligibilityState(vector.eligibility),
                TerminalOutcome(vector.outcome),
                AttemptState(vector.attempt),
            )
        ), vector


def test_every_row_of_the_drawing_can_be_walked() -> None:
    rows = set(range(1, 40))
    assert {number for number, _, _ in drawn()} == rows
    assert {arrow.number for arrow in (*CREATIONS, *ARROWS)} == rows - {REMOVAL[0]}


def test_whom_a_cancelled_flow_has_parked_is_left_only_its_end() -> None:
    parked = "runnable/blocked_by_operator/paused_by_flow_cancel/"
    left_to = {
        (number, end.split("/")[0])
        for number, start, end in drawn()
        if start.startswith(parked) and end != start
    }

    assert left_to == {(5, "terminal"), (28, "terminal"), (29, "terminal")}


def test_an_end_is_left_only_by_replay_and_retention() -> None:
    leaving = {number for number, start, _ in drawn() if start.startswith("terminal/")}

    assert leaving == {31, 32, 33}
    assert not {
        (start, end)
        for _, start, end in drawn()
        if start.startswith("terminal/") and end.startswith("terminal/")
    }


# What the trigger catches.

REOPENED = (
    "lifecycle_phase = 'runnable', eligibility_state = 'eligible_now', terminal_at_ms = NULL,"
    " blocking_reason = 'waiting_for_worker', terminal_outcome = 'none', attempt_state ="
)
QUEUE = """
INSERT INTO ff.ready (route_id, created_at_ms, priority, partition_key, execution_id)
SELECT route_id, created_at_ms, priority, partition_key, execution_id FROM ff.exec_core
"""
ENDED = (
    "lifecycle_phase = 'terminal', eligibility_state = 'not_applicable', blocking_reason = 'none',"
    " terminal_at_ms = 1, terminal_outcome ="
)


async def test_a_waiting_execution_moves_only_along_an_arrow(watched: Connection) -> None:
    await given.created(watched)
    for change in (
        "lifecycle_phase = 'suspended', eligibility_state = 'not_applicable'",
        "attempt_state = 'pending_retry_attempt'",
        "attempt_state = 'attempt_interrupted'",
        "blocking_reason = 'none'",
        "eligibility_state = 'blocked_by_quota'",
        "eligibility_state = 'not_eligible_until_time', delay_until_ms = 1",
        f"{ENDED} 'success'",
        f"{ENDED} 'cancelled', attempt_state = 'attempt_terminal'",
    ):
        with pytest.raises(asyncpg.RaiseError, match="undrawn arrow: runnable/"):
            await watched.execute(f"UPDATE ff.exec_core SET {change}")

    await watched.execute("UPDATE ff.exec_core SET last_mutation_at_ms = 9")
    await watched.execute(
        f"WITH dequeued AS (DELETE FROM ff.ready) UPDATE ff.exec_core SET {ENDED} 'cancelled'"
    )


async def test_an_end_is_left_only_as_a_replay(watched: Connection) -> None:
    lease = await given.claimed(watched)
    await complete(watched, [Completion(lease)])
    for change in (
        "terminal_outcome = 'failed'",
        "last_mutation_at_ms = 0",
        f"{REOPENED} 'pending_first_attempt'",
    ):
        with pytest.raises(asyncpg.RaiseError, match="undrawn arrow: terminal/"):
            await watched.execute(f"UPDATE ff.exec_core SET {change}")

    async with watched.transaction():
        await watched.execute(f"UPDATE ff.exec_core SET {REOPENED} 'pending_replay_attempt'")
        await watched.execute(QUEUE)


async def test_epoch_and_first_start_only_grow_and_what_lives_is_not_removed(
    watched: Connection,
) -> None:
    await given.claimed(watched)

    for change in ("UPDATE ff.lease SET lease_epoch = 0", "DELETE FROM ff.lease"):
        with pytest.raises(asyncpg.RaiseError, match="the epoch went back"):
            await watched.execute(change)
    with pytest.raises(asyncpg.RaiseError, match="started_at_ms moved"):
        await watched.execute("UPDATE ff.exec_core SET started_at_ms = 1")
    with pytest.raises(asyncpg.RaiseError, match=f"undrawn arrow: active.* -> {ABSENT}"):
        await watched.execute("DELETE FROM ff.exec_core")


async def test_a_claimable_execution_is_queued_or_leased_and_no_other_is(
    watched: Connection,
) -> None:
    await given.created(watched)
    for change in (
        "DELETE FROM ff.ready",
        "UPDATE ff.ready SET priority = 1",
        "UPDATE ff.exec_core SET priority = 1",
        "UPDATE ff.exec_core SET deadline_at_ms = 1",
        f"UPDATE ff.exec_core SET {ENDED} 'cancelled'",
    ):
        with pytest.raises(asyncpg.RaiseError, match="claimable as"):
            await watched.execute(change)

    [held] = await claim(watched, given.WORKER, ttl=60)

    with pytest.raises(asyncpg.RaiseError, match="claimable as"):
        await watched.execute(QUEUE)
    await complete(watched, [Completion(held.lease)])
    with pytest.raises(asyncpg.RaiseError, match="claimable as <NULL>"):
        await watched.execute(QUEUE)


# Random walks.


class Walk:
    """Random operations on random executions, with leases that are held, lost or long gone."""

    def __init__(self, db: Connection, clock: Clock, seed: int) -> None:
        self.db, self.clock, self.chance = db, clock, random.Random(seed)
        self.executions: list[ExecutionId] = []
        self.leases: list[Lease] = []
        self.steps: list[tuple[int, Callable[[], Awaitable[object]]]] = [
            (6, self.create),
            (10, self.claim),
            (3, self.complete),
            (4, self.fail),
            (2, self.delay),
            (2, self.release),
            (1, self.release_after_trouble),
            (1, self.cancel),
            (1, self.cancel_execution),
            (2, self.renew),
            (1, self.progress),
            (4, self.pass_time),
            (4, self.sweep),
            (6, self.suspend),
            (4, self.signal),
            (2, self.resume),
            (4, self.sweep_suspensions),
        ]

    async def run(self, steps: int) -> None:
        weights = [weight for weight, _ in self.steps]
        for _, step in self.chance.choices(self.steps, weights, k=steps):
            await step()

    def some_leases(self) -> list[Lease]:
        """Mostly the newest ones, sometimes one that was superseded long ago."""
        if not self.leases:
            return []
        chosen = self.leases[-self.chance.randint(1, 4) :]
        if self.chance.random() < 0.3:
            chosen = [*chosen, self.chance.choice(self.leases)]
        return list(dict.fromkeys(chosen))

    def policy(self) -> ExecutionPolicy | None:
        if self.chance.random() < 0.3:
            return None
        return ExecutionPolicy(
            retry_policy=self.chance.choice(
                [
                    None,
                    RetryPolicy(max_retries=2, backoff=FixedBackoff(delay=0)),
                    RetryPolicy(max_retries=2, backoff=FixedBackoff(delay=20)),
                ]
            ),
            timeout_policy=TimeoutPolicy(attempt_timeout=self.chance.choice([None, 15])),
            max_reclaim_count=self.chance.choice([0, 1, 100]),
        )

    async def create(self) -> None:
        news = [
            given.new(
                policy=self.policy(),
                delay=self.chance.choice([None, None, 10]),
                deadline=self.chance.choice([None, None, 60]),
                priority=self.chance.randint(0, 3),
                idempotency_key="a" if self.chance.random() < 0.1 else None,
            )
            for _ in range(self.chance.randint(1, 4))
        ]
        self.executions += [answer.execution_id for answer in await create_execution(self.db, news)]

    async def claim(self) -> None:
        ttl, limit = self.chance.choice([5, 60]), self.chance.randint(1, 4)
        worker = self.chance.choice([given.WORKER, given.OTHER])
        found = await claim(self.db, worker, ttl=ttl, limit=limit)
        self.leases += [claimed.lease for claimed in found]

    async def complete(self) -> None:
        await complete(self.db, [Completion(lease, b"done") for lease in self.some_leases()])

    async def fail(self) -> None:
        failures = [
            Failure(
                lease=lease,
                reason="random",
                category=self.chance.choice(["transient", "permanent", "of my own"]),
                retry_after=self.chance.choice([None, None, 0, 5]),
            )
            for lease in self.some_leases()
        ]
        await fail(self.db, failures)

    async def delay(self) -> None:
        wait = self.chance.choice([-5, 0, 10])
        await delay(
            self.db, [DelayRequest(lease=lease, delay=wait) for lease in self.some_leases()]
        )

    async def release(self) -> None:
        await release(self.db, self.some_leases())

    async def release_after_trouble(self) -> None:
        troubles = [Trouble(lease=lease, reason="no room") for lease in self.some_leases()]
        await release_after_trouble(self.db, troubles)

    async def cancel(self) -> None:
        await cancel(self.db, [Cancellation(lease, "random") for lease in self.some_leases()[:1]])

    async def cancel_execution(self) -> None:
        if self.executions:
            try:
                await cancel_execution(
                    self.db, self.chance.choice(self.executions[-12:]), reason="random"
                )
            except ValidationError as error:
                assert "already terminal" in error.detail  # noqa: PT017

    async def suspend(self) -> None:
        timeout = self.chance.choice([None, 1, 5, 10])
        until = None if timeout is None else await parked.later(self.clock, timeout)
        asked = self.chance.choice(
            [parked.ask, lambda lease, **more: parked.handler(lease, "go", **more)]
        )
        requests = [
            asked(
                lease,
                timeout_at=until,
                timeout_behavior=self.chance.choice(list(TimeoutBehavior)),
                reason=self.chance.choice(list(SuspensionReason)),
                resume_policy=ResumePolicy(resume_delay=self.chance.choice([None, 3])),
            )
            for lease in self.some_leases()
        ]
        await parked.suspend_all(self.db, requests)

    async def signal(self) -> None:
        signals = [
            NewSignal(execution_id=self.chance.choice(self.executions[-12:]), signal_name=name)
            for name in ("go", "go", "stop")
            if self.executions
        ]
        async with self.db.transaction():
            await send_signals(self.db, signals)
        for row in await self.db.fetch(OPEN_WAITPOINTS, self.chance.random()):
            execution_id = ExecutionId(row["partition_key"], row["execution_id"])
            async with self.db.transaction():
                await deliver_signal(self.db, execution_id, row["waitpoint_id"], row["token"], "go")

    async def resume(self) -> None:
        some = self.executions[-12:]
        async with self.db.transaction():
            await resume_executions(self.db, some, delay=self.chance.choice([0, 5]))

    async def sweep_suspensions(self) -> None:
        async with self.db.transaction():
            await expire_suspensions(self.db, self.chance.choice([1, 100]))

    async def renew(self) -> None:
        await renew(self.db, self.some_leases(), ttl=30, record=self.chance.random() < 0.5)

    async def progress(self) -> None:
        for lease in self.some_leases():
            await progress(self.db, lease, percent=self.chance.randint(0, 100))

    async def pass_time(self) -> None:
        await self.clock.advance(self.chance.choice([1, 6, 20, 61]))

    async def sweep(self) -> None:
        step = self.chance.choice([promote_due, expire_leases, expire_attempts, expire_executions])
        await step(self.db, self.chance.choice([1, 100]))


OPEN_WAITPOINTS = """
SELECT w.* FROM ff.waitpoint_pending w JOIN ff.exec_core e USING (partition_key, execution_id)
 WHERE w.state = 'active' AND e.lifecycle_phase = 'suspended'
   AND abs(hashtext(w.waitpoint_id::text)) % 100 < 30 * $1
"""
IMPLEMENTED = {
    *(1, 2, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 25, 26, 27, 28, 29),
    *(35, 38, 39),
}


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.whole)])
async def test_random_operations_walk_only_along_arrows(
    watched: Connection, clock: Clock, seed: int
) -> None:
    await parked.keyed(watched)
    await Walk(watched, clock, seed).run(600)

    walked = {row["row_number"] for row in await watched.fetch(WALKED)}
    assert walked >= IMPLEMENTED
    assert await watched.fetchval("SELECT count(*) FROM ff_walls.taken") > 400
    assert await parked.broken(watched) == []
