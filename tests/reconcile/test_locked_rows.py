"""A look finds what each sweep moves, and a row that is locked stalls no other row of a sweep."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID, uuid4

import msgspec
import pytest

from flowfabric.budgets import budget_id
from flowfabric.db.rows import Connection
from flowfabric.engine.budgets.sample_budget_usage import sample_budget_usage
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.cancel_siblings import cancel_siblings
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.operators.block_execution_for_admission import block_execution_for_admission
from flowfabric.engine.streams.frame import NewFrame
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.joins import AnyOf
from flowfabric.limits import QuotaLimits, quota_policy_id
from flowfabric.policy import ExecutionPolicy, TimeoutPolicy
from flowfabric.reconcile.find_due import find_due
from flowfabric.reconcile.loop import sweep_all
from flowfabric.reconcile.sweeps import SWEEPS, Sweep
from flowfabric.states import FrameMode, TimeoutBehavior
from flowfabric.testing import Clock
from tests import given
from tests.db.facts import server_is_settled
from tests.engine.controls import Another
from tests.engine.flows.graphs import fan_in, submitted
from tests.engine.journal.journals import COMPENSATION, entry, refund
from tests.engine.schedules.stored import define
from tests.engine.suspensions import given_suspended
from tests.engine.suspensions.parked import handler, suspended

DAY = 86_400.0
QUICK = 5.0
"""Seconds; a sweep that waits for a lock fails after 30."""
RECORDING = "SELECT FROM ff.lease WHERE execution_id = $1 FOR KEY SHARE"
"""As the holder of the lease locks it while it records entries."""


class Unit(msgspec.Struct):
    """Something that is due: its rows, and what tells that a sweep has moved it."""

    moved: str
    """SQL with the key as $1 that answers true once the sweep has moved the unit."""
    key: object
    executions: list[ExecutionId] = []
    flow_id: UUID | None = None
    own: str | None = None
    """SQL with the key as $1 that locks the row of the sweep's own table."""


Build = Callable[[Engine, Connection], Awaitable[Unit]]


def of_execution(moved: str, execution_id: ExecutionId) -> Unit:
    sql = f"SELECT {moved} FROM ff.execution WHERE execution_id = $1"
    return Unit(sql, execution_id.uuid, [execution_id])


async def delayed(engine: Engine, db: Connection) -> Unit:
    return of_execution("public_state = 'waiting'", await given.created(db, delay=1))


async def leased(engine: Engine, db: Connection) -> Unit:
    lease = await given.claimed(db, ttl=1, policy=ExecutionPolicy(max_reclaim_count=0))
    unit = of_execution("public_state = 'failed'", lease.execution_id)
    unit.own = RECORDING
    return unit


async def leased_by_the_dead(engine: Engine, db: Connection) -> Unit:
    """Its lock was missed long ago."""
    await server_is_settled(db)
    unit = await leased(engine, db)
    name = str(uuid4())
    await engine.register_worker(
        worker_id="w", worker_instance_id=name, lanes=("default",), liveness_ttl=600
    )
    await db.execute(
        "UPDATE ff.worker_registry SET liveness_lock = 1, lock_missed_at_ms = 0"
        " WHERE worker_instance_id = $1",
        name,
    )
    await db.execute(
        "UPDATE ff.lease SET worker_instance_id = $1,"
        " lease_expires_at_ms = ff.now_ms() + 600000 WHERE execution_id = $2",
        name,
        unit.key,
    )
    unit.own = (
        "SELECT FROM ff.worker_registry w JOIN ff.lease e USING (worker_instance_id)"
        " WHERE e.execution_id = $1 FOR UPDATE OF w"
    )
    return unit


async def overtime(engine: Engine, db: Connection) -> Unit:
    policy = ExecutionPolicy(timeout_policy=TimeoutPolicy(attempt_timeout=1))
    lease = await given.claimed(db, ttl=600, policy=policy)
    unit = of_execution("public_state = 'expired'", lease.execution_id)
    unit.own = RECORDING
    return unit


async def late(engine: Engine, db: Connection) -> Unit:
    return of_execution("public_state = 'expired'", await given.created(db, deadline=1))


async def uncompensated(engine: Engine, db: Connection) -> Unit:
    lease = await given.claimed(db)
    await engine.arm_compensation(entry(lease, 1, "undo", kind=COMPENSATION), refund())
    await engine.cancel_execution(lease.execution_id, reason="no")
    return of_execution("NOT compensates", lease.execution_id)


async def without_worker(engine: Engine, db: Connection) -> Unit:
    execution_id = await given.created(db, lane_id="blocked")
    await block_execution_for_admission(db, execution_id, "waiting_for_capable_worker")
    await engine.register_worker(
        worker_id="w", worker_instance_id="w-1", lanes=("blocked",), liveness_ttl=600
    )
    return of_execution("eligibility_state = 'eligible_now'", execution_id)


async def unused_waitpoint(engine: Engine, db: Connection) -> Unit:
    lease = await given_suspended.leased(db, ttl=600)
    waitpoint = await given_suspended.pending(db, lease, expires_in=1)
    row = "FROM ff.waitpoint_pending WHERE waitpoint_id = $1"
    return Unit(
        f"SELECT state = 'closed' {row}",
        waitpoint.waitpoint_id,
        [lease.execution_id],
        own=f"SELECT {row} FOR UPDATE",
    )


async def timed_out(engine: Engine, db: Connection) -> Unit:
    held = await suspended(
        db,
        handler(
            await given.claimed(db),
            "go",
            timeout_at=instant(await db.fetchval("SELECT ff.now_ms()") + 1000),
            timeout_behavior=TimeoutBehavior.FAIL,
        ),
    )
    return of_execution("public_state = 'failed'", held.id)


async def ended_upstream(engine: Engine, db: Connection) -> Unit:
    flow = await submitted(engine, "a>b")
    await flow.complete("a")
    unit = of_execution("public_state = 'waiting'", flow["b"])
    unit.flow_id = flow.flow_id
    unit.own = (
        "SELECT FROM ff.completion_event c JOIN ff.exec_core e USING (flow_id)"
        " WHERE e.execution_id = $1 FOR UPDATE OF c"
    )
    return unit


async def lost_completion(engine: Engine, db: Connection) -> Unit:
    unit = await ended_upstream(engine, db)
    await db.execute("UPDATE ff.completion_event SET dispatched_at_ms = 1")
    unit.moved = (
        "SELECT c.dispatched_at_ms IS NULL FROM ff.completion_event c"
        " JOIN ff.execution e USING (flow_id) WHERE e.execution_id = $1"
    )
    return unit


async def loser(engine: Engine, db: Connection) -> Unit:
    flow = await submitted(engine, fan_in(2), policies={"d": AnyOf()})
    await flow.complete("u1")
    await flow.carry()
    unit = of_execution("public_state = 'cancelled'", flow["u2"])
    unit.flow_id = flow.flow_id
    return unit


async def idle_listing(engine: Engine, db: Connection) -> Unit:
    flow = await submitted(engine, "a>b")
    await db.execute(
        "INSERT INTO ff.pending_cancel_groups SELECT partition_key, flow_id, group_id, 0"
        " FROM ff.edge_group WHERE flow_id = $1",
        flow.flow_id,
    )
    gone = "SELECT NOT EXISTS (SELECT FROM ff.pending_cancel_groups WHERE flow_id = $1)"
    own = "SELECT FROM ff.pending_cancel_groups WHERE flow_id = $1 FOR UPDATE"
    return Unit(gone, flow.flow_id, [*flow.ids.values()], flow.flow_id, own)


async def cancelled_flow(engine: Engine, db: Connection) -> Unit:
    flow = await submitted(engine, "a>b")
    await flow.claim("a")
    await engine.cancel_flow_header(flow.flow_id, grace=1)
    unit = of_execution("public_state = 'cancelled'", flow["a"])
    unit.flow_id = flow.flow_id
    unit.own = (
        "SELECT FROM ff.cancel_backlog b JOIN ff.exec_core e USING (flow_id)"
        " WHERE e.execution_id = $1 FOR UPDATE OF b"
    )
    return unit


async def parked(engine: Engine, db: Connection) -> Unit:
    flow = await submitted(engine, "a")
    [lease] = await flow.claim("a")
    await engine.cancel_flow(flow.flow_id, policy="cancel_pending")
    await engine.release([lease])
    unit = of_execution("public_state = 'cancelled'", flow["a"])
    unit.flow_id = flow.flow_id
    return unit


async def unsettled(engine: Engine, db: Connection) -> Unit:
    flow = await submitted(engine, "a>b")
    await flow.complete("a")
    sql = "SELECT members_completed = 1 FROM ff.flow_summary WHERE flow_id = $1"
    own = "SELECT FROM ff.flow_summary WHERE flow_id = $1 FOR UPDATE"
    return Unit(sql, flow.flow_id, [*flow.ids.values()], flow.flow_id, own)


async def old_frame(engine: Engine, db: Connection) -> Unit:
    lease = await given.claimed(db, ttl=600)
    await engine.append_frame(lease, NewFrame(mode=FrameMode.BEST_EFFORT, ttl=0.5))
    gone = "SELECT NOT EXISTS (SELECT FROM ff.stream_frame WHERE execution_id = $1)"
    own = "SELECT FROM ff.stream_meta WHERE execution_id = $1 FOR UPDATE"
    return Unit(gone, lease.execution_id.uuid, own=own)


async def finished(engine: Engine, db: Connection) -> Unit:
    flow = await submitted(engine, "a>b")
    await flow.complete("a")
    await flow.carry()
    await flow.complete("b")
    await flow.carry()
    await engine.project_flow_summary(flow.flow_id)
    gone = "SELECT NOT EXISTS (SELECT FROM ff.execution WHERE flow_id = $1)"
    return Unit(gone, flow.flow_id, [flow["a"]], flow.flow_id)


async def empty_flow(engine: Engine, db: Connection) -> Unit:
    flow_id = uuid4()
    await engine.create_flow(flow_id, flow_kind="pipeline")
    gone = "SELECT NOT EXISTS (SELECT FROM ff.flow_core WHERE flow_id = $1)"
    return Unit(gone, flow_id, flow_id=flow_id)


async def due_schedule(engine: Engine, db: Connection) -> Unit:
    """It cancels an execution that runs."""
    name = str(uuid4())
    await engine.create_schedule(define(name, every=3600, overlap="cancel_running"))
    running = await engine.trigger_schedule(name)
    assert running.execution_id is not None
    own = "SELECT FROM ff.schedule WHERE name = $1 FOR UPDATE"
    fired = "SELECT fired >= 1 FROM ff.schedule WHERE name = $1"
    return Unit(fired, name, [running.execution_id], own=own)


async def queued_execution(engine: Engine, db: Connection) -> Unit:
    """The execution before it has ended."""
    name = str(uuid4())
    await engine.create_schedule(define(name, cron="0 0 1 1 *", overlap="queue_one"))
    first, second = [(await engine.trigger_schedule(name)).execution_id for _ in range(2)]
    assert first is not None
    assert second is not None
    await engine.cancel_execution(first, reason="over")
    unit = of_execution("public_state = 'waiting'", second)
    unit.own = "SELECT FROM ff.schedule WHERE $1 = ANY (latest_ids) FOR UPDATE"
    return unit


def of_table(table: str, key: str, columns: str, values: str) -> Build:
    """A row that is old enough to be deleted."""

    async def build(engine: Engine, db: Connection) -> Unit:
        name = str(uuid4())
        await db.execute(f"INSERT INTO ff.{table} ({key}, {columns}) VALUES ($1, {values})", name)
        found = f"FROM ff.{table} WHERE {key} = $1"
        return Unit(f"SELECT NOT EXISTS (SELECT {found})", name, own=f"SELECT {found} FOR UPDATE")

    return build


worker = of_table(
    "worker_registry",
    "worker_instance_id",
    "partition_key, namespace, worker_id, lanes, capabilities, kinds, concurrency,"
    " last_heartbeat_ms, liveness_ttl_ms, registered_at_ms",
    "0, 'default', 'w', '{}', '{}', '{}', 1, 0, 1, 0",
)
waiter = of_table("waiter", "waiter_id", "topic, waiting_until_ms", "'completion', 0")
worker_event = of_table(
    "worker_registry_event",
    "worker_instance_id",
    "partition_key, namespace, event_at_ms, event_kind, worker_id",
    "0, 'default', 0, 'registered', 'w'",
)
action = of_table(
    "operator_event",
    "actor",
    "occurred_at_ms, partition_key, event_type, details",
    "0, 0, 'key_rotated', '{}'",
)
instant_of_schedule = of_table(
    "schedule_fire",
    "name",
    "partition_key, namespace, fire_at_ms, outcome, recorded_at_ms",
    "0, 'default', 0, 'missed', 0",
)
grant = of_table(
    "claim_grant",
    "worker_id",
    "partition_key, grant_id, execution_id, kind, worker_instance_id, lane_id,"
    " worker_capabilities, grant_ttl_ms, issued_at_ms, expires_at_ms, lease_epoch",
    "0, uuid_send(gen_random_uuid()), gen_random_uuid(), 'claim', 'w-1', 'default', '{}', 1, 0, 0,"
    " 0",
)


async def held_back(engine: Engine, db: Connection, *, noted: bool = True) -> Unit:
    """The second execution of a key, whose first has ended."""
    name = str(uuid4())
    await engine.create_quota_policy(name, QuotaLimits(max_concurrent=1))
    policy = quota_policy_id("default", name)
    new = [given.new(quota_policy_id=policy, lane_id=name) for _ in range(2)]
    await engine.create_execution(new)
    worker = msgspec.structs.replace(given.WORKER, lanes=(name,))
    [task] = await engine.claim(worker, ttl=30, limit=2)
    await engine.complete([Completion(task.lease)])
    if noted:
        await db.execute(
            "INSERT INTO ff.quota_wakeup (partition_key, quota_key_id) VALUES (0, $1)",
            task.quota_key_id,
        )
    [waits] = [each.execution_id for each in new if each.execution_id != task.lease.execution_id]
    return Unit(
        moved="SELECT public_state = 'waiting' FROM ff.execution WHERE execution_id = $1",
        key=waits.uuid,
        executions=[waits],
        own="SELECT FROM ff.quota_key q JOIN ff.exec_core e USING (quota_key_id)"
        " WHERE e.execution_id = $1 FOR UPDATE OF q",
    )


async def forgotten(engine: Engine, db: Connection) -> Unit:
    """The same, and nobody noted it."""
    return await held_back(engine, db, noted=False)


async def idle_key(engine: Engine, db: Connection) -> Unit:
    """A key of which nothing is left."""
    name = str(uuid4())
    await db.execute(
        "INSERT INTO ff.quota_key VALUES (255, hashtext($1), gen_random_uuid(), $1)", name
    )
    return Unit(
        moved="SELECT NOT EXISTS (SELECT FROM ff.quota_key WHERE dimension = $1)",
        key=name,
        own="SELECT FROM ff.quota_key WHERE dimension = $1 FOR UPDATE",
    )


# Budgets.

OF_BUDGET = "SELECT FROM ff.budget_policy WHERE budget_id = $1 FOR UPDATE"
OF_SPENDER = (
    "SELECT FROM ff.budget_policy p JOIN ff.budget_usage_by_exec s USING (partition_key, budget_id)"
    " WHERE s.execution_id = $1 FOR UPDATE OF p"
)


async def budget(engine: Engine, *, reset_interval: float = 0) -> str:
    """A budget of ten tokens."""
    name = str(uuid4())
    await engine.create_budget(
        name,
        dimensions=["tokens"],
        hard_limits=[10],
        soft_limits=[0],
        reset_interval=reset_interval,
    )
    return name


async def over_period(engine: Engine, db: Connection) -> Unit:
    name = await budget(engine, reset_interval=60)
    reset = "SELECT reset_count > 0 FROM ff.budget_policy WHERE budget_id = $1"
    return Unit(reset, budget_id(name), own=OF_BUDGET)


async def used_budget(engine: Engine, db: Connection) -> Unit:
    name = await budget(engine)
    await engine.report_usage_admin(name, ["tokens"], [1])
    noted = "SELECT EXISTS (SELECT FROM ff.budget_usage_history WHERE budget_id = $1)"
    return Unit(noted, budget_id(name), own=OF_BUDGET)


async def minute_of_usage(engine: Engine, db: Connection) -> Unit:
    unit = await used_budget(engine, db)
    await sample_budget_usage(db, 100)
    unit.moved = "SELECT step_ms = 3600000 FROM ff.budget_usage_history WHERE budget_id = $1"
    unit.own = "SELECT FROM ff.budget_usage_history WHERE budget_id = $1 FOR UPDATE"
    return unit


async def out_of_budget(engine: Engine, db: Connection) -> Unit:
    """The budget that held it back has room again."""
    name = await budget(engine)
    await engine.report_usage_admin(name, ["tokens"], [10])
    policy = ExecutionPolicy(budget_ids=(name,))
    execution_id = await given.created(db, lane_id=name, policy=policy)
    worker = msgspec.structs.replace(given.WORKER, lanes=(name,))
    assert await engine.claim(worker, ttl=30) == []
    await db.execute("UPDATE ff.budget_usage SET current_value = 0")
    unit = of_execution("public_state = 'waiting'", execution_id)
    unit.own = (
        "SELECT FROM ff.budget_policy p JOIN ff.exec_core e ON p.budget_id = ANY (e.budget_ids)"
        " WHERE e.execution_id = $1 FOR UPDATE OF p"
    )
    return unit


async def lost_race(engine: Engine, db: Connection) -> Unit:
    """It has spent something before it was cancelled."""
    name = await budget(engine)
    unit = await loser(engine, db)
    await engine.record_spend(name, unit.executions[0], {"tokens": 1})
    async with db.transaction():
        await cancel_siblings(db, 50)
    assert await db.fetchval(unit.moved, unit.key)
    unit.moved = "SELECT NOT EXISTS (SELECT FROM ff.budget_usage_by_exec WHERE execution_id = $1)"
    unit.own = OF_SPENDER
    return unit


usage_key = of_table(
    "budget_usage_dedup",
    "dedup_key",
    "partition_key, budget_id, applied_at_ms, expires_at_ms",
    "0, gen_random_uuid(), 0, 0",
)


session = of_table(
    "web_session",
    "session_id",
    "session_hash, token_hash, address, user_agent, opened_at_ms, last_seen_at_ms, expires_at_ms,"
    " ends_at_ms",
    "uuid_send(gen_random_uuid()), '', '', '', 0, 0, 0, 0",
)


DUE: dict[str, tuple[Build, float]] = {
    "unblock_due_keys": (held_back, 0),
    "unblock_held_keys": (forgotten, 0),
    "trim_quotas": (idle_key, 0),
    "promote_due": (delayed, 2),
    "expire_leases": (leased, 2),
    "recover_dead_workers": (leased_by_the_dead, 0),
    "expire_attempts": (overtime, 2),
    "expire_executions": (late, 2),
    "redispatch_lost_completions": (lost_completion, 0),
    "dispatch_completions": (ended_upstream, 0),
    "cancel_siblings": (loser, 0),
    "reconcile_siblings": (idle_listing, 0),
    "reconcile_cancels": (cancelled_flow, 2),
    "end_parked_members": (parked, 0),
    "start_compensations": (uncompensated, 0),
    "fire_schedules": (due_schedule, 3600),
    "release_queued": (queued_execution, 0),
    "project_unsettled": (unsettled, 20),
    "unblock_routes": (without_worker, 0),
    "expire_pending_waitpoints": (unused_waitpoint, 2),
    "expire_suspensions": (timed_out, 2),
    "expire_workers": (worker, 0),
    "expire_waiters": (waiter, 0),
    "expire_grants": (grant, 0),
    "expire_frames": (old_frame, 2),
    "delete_finished": (finished, 400 * DAY),
    "delete_empty_flows": (empty_flow, 400 * DAY),
    "prune_worker_events": (worker_event, 0),
    "prune_actions": (action, 0),
    "prune_schedule_fires": (instant_of_schedule, 0),
    "reset_budgets": (over_period, 60),
    "unblock_budgets": (out_of_budget, 0),
    "release_lost_races": (lost_race, 0),
    "sample_budget_usage": (used_budget, 0),
    "compact_budget_usage": (minute_of_usage, DAY + 120),
    "prune_usage_keys": (usage_key, 0),
    "forget_sessions": (session, 0),
}
"""What each sweep moves, and after how many seconds."""

LOCKS = ("execution", "flow", "join", "own")


async def locked(conn: Connection, unit: Unit, lock: str) -> None:
    """The rows of that kind which the unit has are locked by the transaction of `conn`."""
    if lock == "execution":
        ids = [each.uuid for each in unit.executions]
        sql = "SELECT FROM ff.exec_core WHERE execution_id = ANY ($1::uuid[]) FOR UPDATE"
        await conn.fetch(sql, ids)
    elif lock == "flow":
        await conn.fetch("SELECT FROM ff.flow_core WHERE flow_id = $1 FOR UPDATE", unit.flow_id)
    elif lock == "join":
        await conn.fetch("SELECT FROM ff.edge_group WHERE flow_id = $1 FOR UPDATE", unit.flow_id)
    elif unit.own is not None:
        await conn.fetch(unit.own, unit.key)


OF_NO_ROW = ("vacuum_queue", "roll_up_activity", "compact_activity", "run_bulk_actions")
MOVING = [sweep for sweep in SWEEPS if sweep.name not in OF_NO_ROW]
"""The sweeps that move rows of something."""


def test_every_sweep_is_tried() -> None:
    assert {sweep.name for sweep in MOVING} == set(DUE)


@pytest.mark.parametrize("sweep", MOVING, ids=lambda sweep: sweep.name)
async def test_what_is_due_is_found_and_the_neighbours_of_a_locked_row_move(
    ff_engine: Engine, db: Connection, clock: Clock, another: Another, sweep: Sweep
) -> None:
    build, seconds = DUE[sweep.name]
    holder = await another()
    for lock in LOCKS:
        first, neighbour = await build(ff_engine, db), await build(ff_engine, db)
        await clock.advance(seconds)
        assert (await find_due(db, "sweeper", [sweep.name])).due == [sweep.name]
        async with holder.transaction():
            await locked(holder, first, lock)

            async with asyncio.timeout(QUICK):
                await sweep_all(ff_engine.pool, sweep)

            assert await db.fetchval(neighbour.moved, neighbour.key), lock
        await sweep_all(ff_engine.pool, sweep)
        assert await db.fetchval(first.moved, first.key), f"{lock}, when it is free again"
