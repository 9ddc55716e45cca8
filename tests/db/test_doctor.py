"""What another writer stored, and the process that sweeps: the doctor names them."""

import pytest

from flowfabric.config import DATABASE_POOLER
from flowfabric.db.doctor import Finding, Verdict, examine
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.policy import ExecutionPolicy
from flowfabric.reconcile.find_due import find_due
from tests import given


async def finding(dsn: str, check: str) -> Finding:
    [found] = [each for each in await examine(dsn) if each.check == check]
    return found


async def stored_values(dsn: str) -> Finding:
    return await finding(dsn, "stored values")


async def test_values_in_range_are_fine(db: Connection, ff_dsn: str) -> None:
    await given.created(db, policy=given.retrying(), deadline=60)

    assert (await stored_values(ff_dsn)).verdict is Verdict.OK


async def test_executions_with_values_out_of_range_are_named(db: Connection, ff_dsn: str) -> None:
    sound = await given.created(db, policy=ExecutionPolicy(max_reclaim_count=3))
    policy, deadline = await given.created(db), await given.created(db, deadline=60)
    await db.execute(
        """UPDATE ff.exec_body SET policy = '{"max_reclaim_count": 3.0}'
            WHERE execution_id = $1""",
        policy.uuid,
    )
    await db.execute(
        "UPDATE ff.exec_core SET deadline_at_ms = 2 * 253402300800000 WHERE execution_id = $1",
        deadline.uuid,
    )

    found = await stored_values(ff_dsn)

    assert found.verdict is Verdict.WARN
    assert found.found.startswith("2 executions")
    assert str(policy) in found.found
    assert str(deadline) in found.found
    assert str(sound) not in found.found


async def test_what_has_ended_needs_no_attention(db: Connection, ff_dsn: str) -> None:
    lease = await given.claimed(db, policy=given.retrying())
    await db.execute("""UPDATE ff.exec_body SET policy = '{"max_reclaim_count": "x"}'""")
    await complete(db, [Completion(lease)])

    assert (await stored_values(ff_dsn)).verdict is Verdict.OK


async def test_the_process_that_sweeps_is_named(ff_engine: Engine, ff_dsn: str) -> None:
    assert (await finding(ff_dsn, "sweeps")).verdict is Verdict.OK  # there is no worker

    await ff_engine.register_worker(
        worker_id="w", worker_instance_id="w-1", lanes=("default",), liveness_ttl=60
    )
    nobody = await finding(ff_dsn, "sweeps")
    async with ff_engine.pool.connection() as conn:
        await find_due(conn, "w-1", [])
    swept = await finding(ff_dsn, "sweeps")

    assert (nobody.verdict, nobody.found[:17]) == (Verdict.WARN, "run by no process")
    assert "reconcile=False" in nobody.advice
    assert (swept.verdict, swept.found[:11]) == (Verdict.OK, "run by w-1;")


async def test_a_queue_of_sound_executions_is_fine(db: Connection, ff_dsn: str) -> None:
    lease = await given.claimed(db)
    await complete(db, [Completion(lease)])
    await given.claimed(db)
    await given.created(db, delay=60)
    await given.created(db)

    assert (await finding(ff_dsn, "queue")).verdict is Verdict.OK


MISPLACED = {
    "neither": "DELETE FROM ff.ready",
    "both": """INSERT INTO ff.lease (
           partition_key, execution_id, attempt_index, lease_id, lease_epoch, lease_expires_at_ms,
           last_mutation_at_ms, attempt_started_at_ms, lease_reclaim_count, attempt_recorded,
           attempt_type, worker_id, worker_instance_id)
    SELECT partition_key, execution_id, 0, gen_random_uuid(), lease_epoch + 1, 0, 0, 0, 0, false,
           'initial', 'w', 'w-1' FROM ff.exec_core WHERE lifecycle_phase = 'runnable'""",
    "blocked and queued": """UPDATE ff.exec_core SET eligibility_state = 'blocked_by_operator',
           blocking_reason = 'paused_by_operator' WHERE lifecycle_phase = 'runnable'""",
    "another priority": "UPDATE ff.exec_core SET priority = 7",
    "gone": "DELETE FROM ff.exec_core",
}


@pytest.mark.parametrize("change", MISPLACED.values(), ids=MISPLACED)
async def test_executions_that_the_queue_contradicts_are_named(
    db: Connection, ff_dsn: str, change: str
) -> None:
    lease = await given.claimed(db)
    await complete(db, [Completion(lease)])
    misplaced = sorted([str(await given.created(db)) for _ in range(6)])
    await db.execute(change)

    found = await finding(ff_dsn, "queue")

    assert found.verdict is Verdict.WARN
    assert found.found.startswith("6 executions")
    assert found.found.endswith(f": {', '.join(misplaced[:5])}, …")


@pytest.mark.parametrize("change", ["lease_epoch = 7", "eligibility_state = 'blocked_by_operator'"])
async def test_a_lease_that_no_execution_has_is_named(
    db: Connection, ff_dsn: str, change: str
) -> None:
    lease = await given.claimed(db)
    await db.execute(f"UPDATE ff.exec_core SET {change}")

    found = await finding(ff_dsn, "queue")

    assert found.verdict is Verdict.WARN
    assert str(lease.execution_id) in found.found


@pytest.mark.session("alters what a new session of its database has")
async def test_behind_a_pooler_planner_settings_that_the_role_lacks_are_named(
    db: Connection, ff_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATABASE_POOLER, "1")
    names = ["enable_seqscan", "enable_hashjoin", "enable_mergejoin"]
    database = await db.fetchval("SELECT current_database()")
    lacking = await finding(ff_dsn, "plans")
    try:
        for name in names:
            await db.execute(f"ALTER DATABASE {database} SET {name} = off")
        set_now = await finding(ff_dsn, "plans")
    finally:
        await db.execute(f"ALTER DATABASE {database} RESET ALL")

    assert (lacking.verdict, lacking.found) == (Verdict.WARN, f"{', '.join(names)}: on")
    assert set_now.verdict is Verdict.OK
