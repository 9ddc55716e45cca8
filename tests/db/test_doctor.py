"""Values that another writer stored out of range: the doctor names their executions."""

from flowfabric.db.doctor import Finding, Verdict, examine
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.policy import ExecutionPolicy
from tests import given


async def stored_values(dsn: str) -> Finding:
    [found] = [each for each in await examine(dsn) if each.check == "stored values"]
    return found


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
