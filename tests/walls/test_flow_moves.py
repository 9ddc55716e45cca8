"""Flows, at random: members move only along drawn arrows, and every invariant holds."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest

from flowfabric.db.rows import Connection
from flowfabric.db.transaction import transact
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.reconcile_cancels import reconcile_cancels
from flowfabric.engine.joins.dispatch_completions import dispatch_completions
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.delay import DelayRequest
from flowfabric.engine.lifecycle.end_parked_members import end_parked_members
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.lifecycle.wait_children import ChildWait
from flowfabric.engine.operators.block_execution_for_admission import block_execution_for_admission
from flowfabric.engine.suspensions.expire_suspensions import expire_suspensions
from flowfabric.engine.suspensions.send_signal import NewSignal
from flowfabric.errors import EngineError, InternalError, NonDeterministicReplay
from flowfabric.ids import ExecutionId, GroupId, child_id, children_group_id
from flowfabric.joins import AllOf, AnyOf, Quorum
from flowfabric.policy import FixedBackoff
from flowfabric.states import CancellationPolicy, TimeoutBehavior
from flowfabric.testing import Clock
from tests import given
from tests.engine.flows.graphs import Graph, empty, submitted
from tests.engine.joins import parents
from tests.engine.joins.invariants import broken_invariants
from tests.engine.suspensions import parked
from tests.walls.state_machine import drawn
from tests.walls.test_state_machine import INSTALL, WALKED

Step = Callable[[], Awaitable[object]]
GRAPHS = ("a>d b>d c>d", "a>b b>c c>d", "a>b a>c b>d c>d d>e", "a b c>d")
AT_ONCE = given.retrying(backoff=FixedBackoff(delay=0))
LATER = given.retrying(backoff=FixedBackoff(delay=5))


class Walk:
    """Flows that are built, run, cancelled and replayed, with children, delays and operators."""

    def __init__(self, db: Connection, engine: Engine, clock: Clock, seed: int) -> None:
        self.db, self.engine, self.clock = db, engine, clock
        self.chance = random.Random(seed)
        self.flows: list[Graph] = []
        self.leases: list[Lease] = []
        self.paused: list[ExecutionId] = []
        self.steps: list[tuple[int, Step]] = [
            (3, self.submit),
            (3, self.build),
            (12, self.claim),
            (8, self.complete),
            (3, self.fail),
            (1, self.delay),
            (2, self.release),
            (4, self.wait_for_children),
            (3, self.suspend_for_children),
            (2, self.signal),
            (8, self.dispatch),
            (4, self.link),
            (2, self.pause),
            (4, self.unpause),
            (2, self.promote),
            (2, self.cancel_one),
            (1, self.cancel_flow),
            (1, self.cancel_under_a_holder),
            (4, self.replay),
            (3, self.pass_time),
            (4, self.sweep),
        ]

    async def run(self, steps: int) -> None:
        weights = [weight for weight, _ in self.steps]
        for _, step in self.chance.choices(self.steps, weights, k=steps):
            try:
                await step()
            except InternalError:
                raise
            except (EngineError, NonDeterministicReplay):
                pass  # refused

    def some_flow(self) -> Graph:
        return self.chance.choice(self.flows[-4:])

    def some_member(self) -> tuple[Graph, str]:
        flow = self.some_flow()
        return flow, self.chance.choice(sorted(flow.ids))

    def some_lease(self) -> Lease:
        return self.leases.pop(self.chance.randrange(len(self.leases)))

    async def submit(self) -> None:
        arrows = self.chance.choice(GRAPHS)
        policy = self.chance.choice([AllOf(), AnyOf(), AnyOf("let_run"), Quorum(1)])
        fields = {
            name: {
                "delay": self.chance.choice([None, None, 5]),
                "deadline": self.chance.choice([None, None, None, 60]),
                "policy": self.chance.choice([None, AT_ONCE, LATER]),
            }
            for name in "abcde"
        }
        self.flows.append(
            await submitted(self.engine, arrows, policies={"d": policy}, fields=fields)
        )

    async def build(self) -> None:
        """A flow whose members wait to be let go or linked."""
        hold = self.chance.random() < 0.5
        self.flows.append(await empty(self.engine, *"abd", hold=hold or None))

    async def claim(self) -> None:
        for claimed in await claim(self.db, given.WORKER, ttl=20, limit=2):
            self.leases.append(claimed.lease)

    async def complete(self) -> None:
        if self.leases:
            await self.engine.complete([Completion(self.some_lease(), b"1")])

    async def fail(self) -> None:
        if self.leases:
            category = self.chance.choice(["transient", "permanent"])
            failure = Failure(lease=self.some_lease(), reason="random", category=category)
            await self.engine.fail([failure])

    async def delay(self) -> None:
        if self.leases:
            await self.engine.delay([DelayRequest(lease=self.some_lease(), delay=5)])

    async def release(self) -> None:
        if self.leases:
            await self.engine.release([self.some_lease()])

    async def wait_for_children(self) -> None:
        if self.leases:
            lease, wait = await self.spawn()
            await self.engine.wait_children([ChildWait(lease=lease, groups=(wait,))])

    async def suspend_for_children(self) -> None:
        if self.leases:
            lease, wait = await self.spawn()
            asked = parked.handler(
                lease,
                "go",
                awaits_joins=(wait.uuid,),
                timeout_at=await parked.later(self.clock, self.chance.choice([5, 60])),
                timeout_behavior=self.chance.choice(list(TimeoutBehavior)),
            )
            await self.engine.suspend([asked])

    async def signal(self) -> None:
        flow, name = self.some_member()
        await self.engine.send_signal(NewSignal(execution_id=flow[name], signal_name="go"))

    async def spawn(self) -> tuple[Lease, GroupId]:
        """A holder has children, and the join that waits for them."""
        lease = self.some_lease()
        parent = lease.execution_id
        wait = children_group_id(parent, 0)
        born = [
            given.new(execution_id=child_id(parent, 0, index, kind="job")) for index in range(2)
        ]
        await self.engine.spawn_children(lease, born, group=wait, policy=AnyOf())
        return lease, wait

    async def dispatch(self) -> None:
        await transact(self.engine.pool, "walk", dispatch_completions)

    async def link(self) -> None:
        flow = self.some_flow()
        up, down = self.chance.sample(sorted(flow.ids), 2)
        await flow.stage(f"{up}>{down}")
        await flow.apply(f"{up}>{down}")

    async def pause(self) -> None:
        flow, name = self.some_member()
        reason = self.chance.choice(["paused_by_operator", "waiting_for_quota"])
        await block_execution_for_admission(self.db, flow[name], reason)
        self.paused.append(flow[name])

    async def unpause(self) -> None:
        if self.paused:
            await self.engine.unblock_execution(self.paused.pop())

    async def promote(self) -> None:
        flow, name = self.some_member()
        await self.engine.promote_blocked_to_eligible(flow[name])

    async def cancel_one(self) -> None:
        flow, name = self.some_member()
        await flow.cancel(name)

    async def cancel_flow(self) -> None:
        policy = self.chance.choice(list(CancellationPolicy))
        wait = self.chance.choice([None, 10.0])
        await self.engine.cancel_flow(self.some_flow().flow_id, policy=policy, wait=wait)

    async def cancel_under_a_holder(self) -> None:
        """The flow of a member that runs is cancelled, and the member is handed back."""
        if self.leases:
            lease = self.some_lease()
            for flow in self.flows:
                if lease.execution_id in flow.ids.values():
                    policy = CancellationPolicy.CANCEL_PENDING
                    await self.engine.cancel_flow(flow.flow_id, policy=policy)
            await self.engine.release([lease])

    async def replay(self) -> None:
        flow, name = self.some_member()
        await flow.replay(name)

    async def pass_time(self) -> None:
        await self.clock.advance(self.chance.choice([1, 6, 25]))

    async def sweep(self) -> None:
        step = self.chance.choice([promote_due, expire_leases, expire_executions])
        await step(self.db, 100)
        await end_parked_members(self.db, 100)
        await transact(self.engine.pool, "walk", reconcile_cancels)
        await transact(self.engine.pool, "walk", lambda conn: expire_suspensions(conn, 100))


@pytest.fixture
async def watched(db: Connection) -> Connection:
    """A database in which an undrawn arrow is an error."""
    await db.execute(INSTALL)
    await db.copy_records_to_table("drawn", schema_name="ff_walls", records=drawn())
    await db.execute("CREATE INDEX ON ff_walls.drawn (start, finish)")
    return db


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.whole)])
async def test_random_flows_walk_only_along_arrows(
    watched: Connection, ff_engine: Engine, clock: Clock, seed: int
) -> None:
    walk = Walk(watched, ff_engine, clock, seed)
    await walk.submit()
    await walk.build()
    await walk.run(500)
    await ff_engine.dispatch()

    assert await broken_invariants(watched) == {}
    assert await parked.broken(watched) == []
    assert await watched.fetchval("SELECT count(*) FROM ff_walls.taken") > 300


# Each row that flows add or widen.


async def walked(db: Connection) -> set[int]:
    """The rows of the drawing that were walked since the last look."""
    found = {row["row_number"] for row in await db.fetch(WALKED)}
    await db.execute("DELETE FROM ff_walls.taken")
    return found


async def test_one_is_created_held_joins_and_is_let_go(
    watched: Connection, ff_engine: Engine
) -> None:
    flow = await empty(ff_engine, "a", hold=True)
    assert await walked(watched) == {34, 35}

    await ff_engine.promote_blocked_to_eligible(flow["a"])

    assert await walked(watched) == {4}


async def test_one_whose_time_has_not_come_is_promoted_into_its_delay(
    watched: Connection, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "a>d", fields={"d": {"delay": 60}})
    await flow.complete("a")
    await walked(watched)

    await flow.carry_all()

    assert await walked(watched) == {4}
    assert await flow.states() == "a:ok d:d"


@pytest.mark.parametrize("waits", ["for a worker", "for its time"])
async def test_a_late_edge_blocks_one_again(
    watched: Connection, ff_engine: Engine, waits: str
) -> None:
    flow = await empty(ff_engine, "a", "b")
    await flow.add("d", delay=60 if waits == "for its time" else None)
    await flow.link("a>d")
    await flow.complete("a")
    await flow.carry_all()
    await walked(watched)

    await flow.link("b>d")

    assert await walked(watched) == {3}
    assert await flow.state("d") == "waiting_children"


async def test_an_operators_block_and_an_edge_lie_on_each_other(
    watched: Connection, ff_engine: Engine
) -> None:
    flow = await empty(ff_engine, "a", "b", "d")
    await ff_engine.block_execution_for_admission(flow["d"], "paused_by_operator")
    assert 6 in await walked(watched)
    await flow.link("a>d")
    assert 3 in await walked(watched)
    await flow.complete("a")
    await walked(watched)
    await flow.carry_all()
    assert 4 in await walked(watched)
    await flow.link("b>d")
    await walked(watched)

    await ff_engine.unblock_execution(flow["d"])

    assert await walked(watched) == {7}
    assert await flow.state("d") == "waiting_children"


async def test_one_that_runs_is_skipped(watched: Connection, ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "d")
    await flow.claim("d")
    await flow.link("a>d")
    await flow.fail("a")
    await walked(watched)

    await flow.carry_all()

    assert await walked(watched) == {5}
    assert await flow.states() == "a:f d:k"
    [attempt] = await given.attempts(watched, flow["d"])
    assert (attempt["outcome"], attempt["failure_reason"]) == ("cancelled", "dependency_impossible")


async def test_a_cancelled_flow_parks_what_waits_and_what_comes_back(
    watched: Connection, ff_engine: Engine
) -> None:
    retried = {"policy": AT_ONCE}
    flow = await submitted(ff_engine, "a b>c d", fields={"a": retried, "d": {"delay": 60}})
    released, failed = await flow.claim("b", "a")
    await walked(watched)
    await ff_engine.cancel_flow_header(flow.flow_id, policy=CancellationPolicy.CANCEL_PENDING)
    assert 36 in await walked(watched)

    await ff_engine.release([released])
    await ff_engine.fail([Failure(lease=failed, reason="boom")])

    assert await walked(watched) == {37}
    await ff_engine.cancel_flow(flow.flow_id)
    assert await end_parked_members(watched, 10) == 2
    assert await walked(watched) == {29}
    assert await flow.states() == "a:c b:c c:c d:c"


async def test_a_parent_lets_go_and_is_woken(watched: Connection, ff_engine: Engine) -> None:
    family = await parents.parent(ff_engine, watched)
    await family.spawn("a")
    await walked(watched)
    await family.put_down()
    assert await walked(watched) == {17}
    await family.complete("a")
    await walked(watched)

    await family.settle()

    assert await walked(watched) == {4}


async def test_a_suspended_member_of_a_cancelled_flow_is_parked_when_it_is_resumed(
    watched: Connection, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "a")
    [lease] = await flow.claim("a")
    await parked.suspended(watched, parked.handler(lease, "go"))
    assert 18 in await walked(watched)
    await ff_engine.cancel_flow(flow.flow_id, policy=CancellationPolicy.CANCEL_PENDING)
    await walked(watched)

    await ff_engine.send_signal(NewSignal(execution_id=flow["a"], signal_name="go"))

    assert 37 in await walked(watched)
    assert await end_parked_members(watched, 10) == 1
