"""terminal → gone: of what is forgotten, no table keeps anything."""

from typing import Any
from uuid import uuid4

from flowfabric.conditions import Single
from flowfabric.db.rows import Connection
from flowfabric.engine.budgets.record_spend import record_spend
from flowfabric.engine.engine import Engine
from flowfabric.engine.keys.seed_waitpoint_hmac_secret import seed_waitpoint_hmac_secret
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.change_priority import change_priority
from flowfabric.engine.retention.trim import Trim
from flowfabric.engine.retention.trim_retention import trim_retention
from flowfabric.engine.streams.append_frame import append_frame
from flowfabric.engine.streams.frame import NewFrame
from flowfabric.engine.suspensions.send_signal import NewSignal, send_signal
from flowfabric.ids import ExecutionId
from flowfabric.joins import AnyOf
from flowfabric.policy import FixedBackoff
from flowfabric.states import FrameMode, TerminalOutcome
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import execution
from tests.engine.flows.graphs import submitted
from tests.engine.suspensions.given_suspended import Suspended, accepted, pending, suspend

# The ledger of a schedule says for 30 days what an instant has created, as it is.
CATALOG = """
SELECT c.table_name FROM information_schema.columns c
  JOIN information_schema.tables t USING (table_schema, table_name)
 WHERE c.table_schema = 'ff' AND c.column_name = 'execution_id' AND t.table_type = 'BASE TABLE'
   AND c.table_name <> 'schedule_fire'
"""
EMPTIED = {
    "attempt",
    "budget_usage_by_exec",
    "cancel_backlog_member",
    "claim_grant",
    "completion_event",
    "exec_body",
    "exec_core",
    "exec_idempotency",
    "exec_tag",
    "journal",
    "quota_admitted",
    "lease",
    "lease_event",
    "operator_event",
    "ready",
    "signal_dedup",
    "signal_event",
    "signal_inbox",
    "stream_frame",
    "stream_meta",
    "stream_summary",
    "suspend_dedup",
    "suspension_current",
    "waitpoint_pending",
}
"""Where these tests look; a table that is missing here was forgotten by a migration, or by us."""

CATALOG_OF_FLOWS = """
SELECT c.table_name FROM information_schema.columns c
  JOIN information_schema.tables t USING (table_schema, table_name)
 WHERE c.table_schema = 'ff' AND c.column_name = 'flow_id' AND t.table_type = 'BASE TABLE'
"""
EMPTIED_WITH_THE_FLOW = {
    "cancel_backlog",
    "cancel_backlog_member",
    "completion_event",
    "edge",
    "edge_group",
    "exec_core",
    "flow_core",
    "flow_summary",
    "pending_cancel_groups",
}
KEPT_AFTER_THE_FLOW = {"operator_event"}
"""What was done to a flow is remembered as long as other actions are."""

OWED = "INSERT INTO ff.cancel_backlog_member VALUES ($1, $2, $3)"
GRANT = """
INSERT INTO ff.claim_grant (
       partition_key, grant_id, execution_id, kind, worker_id, worker_instance_id, lane_id,
       worker_capabilities, grant_ttl_ms, issued_at_ms, expires_at_ms, lease_epoch)
SELECT $1, decode(kind, 'escape'), $2, kind, 'w', 'w-1', 'default', '{}', 60000, ff.now_ms(),
       ff.now_ms() + 60000, 0 FROM unnest(ARRAY['claim', 'reclaim']) AS kind
"""
ADMITTED = """
INSERT INTO ff.quota_admitted (
       partition_key, quota_key_id, quota_policy_id, execution_id, execution_partition,
       admitted_at_ms, expires_at_ms)
VALUES (0, 1, gen_random_uuid(), $1, 0, 0, 0)
"""
# An execution that has ended is neither queued nor leased; if it is, that is deleted too.
QUEUED = """
INSERT INTO ff.ready (route_id, created_at_ms, priority, partition_key, execution_id)
SELECT route_id, created_at_ms, priority, partition_key, execution_id
  FROM ff.exec_core WHERE execution_id = $1
"""
LEASED = """
INSERT INTO ff.lease (
       partition_key, execution_id, attempt_index, lease_id, lease_epoch, lease_expires_at_ms,
       last_mutation_at_ms, attempt_started_at_ms, lease_reclaim_count, attempt_recorded,
       attempt_type, worker_id, worker_instance_id)
VALUES ($1, $2, 0, gen_random_uuid(), 9, 0, 0, 0, 0, false, 'initial', 'w', 'w-1')
"""


WAITED = (
    """
INSERT INTO ff.journal (
       partition_key, seq, execution_id, attempt_index, started_at_ms, recorded_at_ms, kind, state,
       name)
VALUES ($1, 1, $2, 0, 0, 0, 'step', 'done', 'charge')
""",
    """
INSERT INTO ff.suspend_dedup (
       partition_key, execution_id, idempotency_key, outcome, created_at_ms, expires_at_ms)
VALUES ($1, $2, 'k', '{}', 0, 0)
""",
)
"""Of a handler that was suspended by a call with an idempotency key."""


async def tables_by_execution(db: Connection) -> set[str]:
    """The tables that keep something under an execution's id."""
    return {row["table_name"] for row in await db.fetch(CATALOG)}


async def rows_of(db: Connection, execution_id: ExecutionId) -> dict[str, int]:
    """How many rows each of these tables has of one execution."""
    return {
        table: await db.fetchval(
            f"SELECT count(*) FROM ff.{table} WHERE execution_id = $1", execution_id.uuid
        )
        for table in await tables_by_execution(db)
    }


async def remembered(db: Connection, **fields: Any) -> ExecutionId:
    """An execution that left something in every table, and has ended."""
    fields["policy"] = given.retrying(1, backoff=FixedBackoff(delay=0))
    execution_id = await given.created(
        db, tags={"shop.tenant": "t", "shop.order": "7"}, idempotency_key="order-7", **fields
    )
    await change_priority(db, execution_id, 7)
    async with db.transaction():
        await send_signal(db, NewSignal(execution_id=execution_id, signal_name="hello"))
    await seed_waitpoint_hmac_secret(db, "k1", "a1" * 32)
    [task] = await claim(db, given.WORKER, ttl=30)
    await append_frame(db, task.lease, NewFrame(payload=b"{}", mode=FrameMode.SUMMARY))
    await record_spend(db, "b", execution_id, {"tokens": 1})
    held = Suspended(task.lease, {"a": await pending(db, task.lease)})
    await suspend(db, held, Single("a"))
    await accepted(db, held.waitpoints["a"], idempotency_key="k")
    for _ in range(2):
        [task] = await claim(db, given.WORKER, ttl=30)
        await fail(db, [Failure(lease=task.lease, reason="boom")])
    for statement in WAITED:
        await db.execute(statement, execution_id.partition_key, execution_id.uuid)
    await db.execute(GRANT, execution_id.partition_key, execution_id.uuid)
    await db.execute(OWED, execution_id.partition_key, uuid4(), execution_id.uuid)
    await db.execute(QUEUED, execution_id.uuid)
    await db.execute(ADMITTED, execution_id.uuid)
    await db.execute(LEASED, execution_id.partition_key, execution_id.uuid)
    return execution_id


async def test_no_table_keeps_anything_of_it(db: Connection, clock: Clock) -> None:
    execution_id = await remembered(db)
    before = await rows_of(db, execution_id)
    assert set(before) == EMPTIED
    assert all(before.values()), before

    assert await trim_retention(db, Trim(lane_id="default", retention=0)) == 1

    assert await rows_of(db, execution_id) == dict.fromkeys(EMPTIED, 0)


async def test_the_tables_looked_at_are_those_of_the_catalog(db: Connection) -> None:
    assert await tables_by_execution(db) == EMPTIED


async def test_a_table_that_is_new_is_noticed(db: Connection) -> None:
    await db.execute("CREATE TABLE ff.extra (execution_id uuid)")
    try:
        assert await tables_by_execution(db) - EMPTIED == {"extra"}
    finally:
        await db.execute("DROP TABLE ff.extra")


async def test_a_row_that_is_left_is_noticed(db: Connection, clock: Clock) -> None:
    execution_id = await execution(db, "cancelled")
    await db.execute("CREATE TABLE ff.extra (execution_id uuid)")
    try:
        await db.execute("INSERT INTO ff.extra VALUES ($1)", execution_id.uuid)
        await trim_retention(db, Trim(lane_id="default", retention=0))

        left = {table for table, rows in (await rows_of(db, execution_id)).items() if rows}
    finally:
        await db.execute("DROP TABLE ff.extra")

    assert left == {"extra"}


async def test_everything_of_its_neighbours_stays(db: Connection, clock: Clock) -> None:
    neighbour = await remembered(db)
    before = await given.everything(db)
    gone = await given.created(db, namespace="acme", tags={"shop.tenant": "t"})
    await cancel_execution(db, gone, reason="no")

    trim = Trim(lane_id="default", retention=0, namespace="acme")
    assert await trim_retention(db, trim) == 1

    apart = ("route", "operator_event")  # the route stays, and the trim is an operator's event
    kept = [line for line in await given.everything(db) if line[0] not in apart]
    assert kept == [line for line in before if line[0] not in apart]
    assert all((await rows_of(db, neighbour)).values())


# Members of flows.


async def test_the_tables_of_flows_are_those_of_the_catalog(db: Connection) -> None:
    found = {row["table_name"] for row in await db.fetch(CATALOG_OF_FLOWS)}

    assert found == EMPTIED_WITH_THE_FLOW | KEPT_AFTER_THE_FLOW


async def test_no_table_keeps_anything_of_a_flow(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await submitted(ff_engine, "a>d b>d", policies={"d": AnyOf()})
    await flow.complete("a")
    await flow.carry_all()
    await ff_engine.cancel_flow_header(flow.flow_id)
    await terminalize(db, list(flow.ids.values()), outcome=TerminalOutcome.CANCELLED)
    await ff_engine.project_flow_summary(flow.flow_id)
    tables = EMPTIED_WITH_THE_FLOW | KEPT_AFTER_THE_FLOW
    assert {table: bool(await flow.count(table)) for table in tables} == dict.fromkeys(tables, True)

    assert await trim_retention(db, Trim(lane_id="default", retention=0)) == 3

    left = {table for table in tables if await flow.count(table)}
    assert left == KEPT_AFTER_THE_FLOW
