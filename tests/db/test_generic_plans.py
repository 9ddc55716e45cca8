"""Our connections plan a statement once, for any parameters; the plan holds when tables grow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.describe_execution import describe_execution
from flowfabric.engine.executions.read_outcomes import read_outcomes
from flowfabric.engine.joins.queue_children import queue_children
from flowfabric.engine.journal.arm_compensation import arm_compensation
from flowfabric.engine.journal.list_steps import list_steps
from flowfabric.engine.journal.read_journal import read_journal
from flowfabric.engine.journal.record_entries import record_entries
from flowfabric.engine.journal.restart_execution import restart_execution
from flowfabric.engine.journal.start_compensations import start_compensations
from flowfabric.engine.lifecycle.cancel import Cancellation, cancel
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.delay import DelayRequest, delay
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.lifecycle.release_after_trouble import (
    Trouble,
    release_after_trouble,
)
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.engine.operators.wake_execution import wake_execution
from flowfabric.engine.retention.count_trimmable import count_trimmable
from flowfabric.engine.retention.trim import Trim
from tests import given
from tests.engine.journal.journals import COMPENSATION, OPEN, SLEEP, entry, refund
from tests.engine.journal.test_record_entry_in_sql import record
from tests.engine.lifecycle.claim_costs import Queue

pytestmark = [
    pytest.mark.session("reads the prepared statements and the counters of one session"),
    pytest.mark.usefixtures("new_database"),
]

PLANS = """
SELECT sum(generic_plans)::integer AS generic, sum(custom_plans)::integer AS custom
  FROM pg_prepared_statements
 WHERE statement LIKE '%-- ' || $1 || E'\\n%' AND statement NOT LIKE '%pg_prepared_statements%'
"""
FETCHED = "SELECT sum(idx_tup_fetch + seq_tup_read)::integer FROM pg_stat_xact_user_tables"
GROWN = 3000
MOST = 40
"""Rows that a statement about one execution may fetch."""


async def test_a_statement_is_planned_once_however_often_it_runs(db: Connection) -> None:
    for _ in range(7):
        await complete(db, [Completion(await given.claimed(db))])

    for name in ("lifecycle.create_execution", "lifecycle.claim", "lifecycle.complete"):
        [plans] = await db.fetch(PLANS, name)
        assert dict(plans) == {"generic": 7, "custom": 0}, name


async def replayed(db: Connection, lease: Lease) -> None:
    await record_entries(db, [entry(lease, 1)])
    await fail(db, [Failure(lease=lease, reason="x", category="permanent")])
    await replay_execution(db, lease.execution_id, from_="start")


async def woken(db: Connection, lease: Lease) -> None:
    await record_entries(db, [entry(lease, 1, kind=SLEEP, state=OPEN)])
    await delay(db, [DelayRequest(lease=lease, delay=5)])
    await wake_execution(db, lease.execution_id, skip=True)


CALLS: dict[str, Callable[[Connection, Lease], Awaitable[Any]]] = {
    "create": lambda db, lease: create_execution(db, [given.new()]),
    "renew": lambda db, lease: renew(db, [lease], ttl=30),
    "complete": lambda db, lease: complete(db, [Completion(lease)]),
    "fail": lambda db, lease: fail(db, [Failure(lease=lease, reason="x")]),
    "release": lambda db, lease: release(db, [lease]),
    "release_after_trouble": lambda db, lease: release_after_trouble(
        db, [Trouble(lease=lease, reason="x")]
    ),
    "delay": lambda db, lease: delay(db, [DelayRequest(lease=lease, delay=5)]),
    "cancel": lambda db, lease: cancel(db, [Cancellation(lease, "x")]),
    "cancel_execution": lambda db, lease: cancel_execution(db, lease.execution_id, reason="x"),
    "describe": lambda db, lease: describe_execution(db, lease.execution_id),
    "claim": lambda db, lease: given.claimed(db),
    "read_outcomes": lambda db, lease: read_outcomes(db, [lease.execution_id]),
    "queue_children": lambda db, lease: queue_children(db, [lease.execution_id]),
    "record_entries": lambda db, lease: record_entries(db, [entry(lease, 1), entry(lease, 2)]),
    "read_journal": lambda db, lease: read_journal(db, [lease.execution_id]),
    "list_steps": lambda db, lease: list_steps(db, lease.execution_id),
    "record_entry": lambda db, lease: record(db, lease),
    "arm_compensation": lambda db, lease: arm_compensation(
        db, entry(lease, 1, kind=COMPENSATION), refund()
    ),
    "restart_execution": lambda db, lease: restart_execution(db, lease, payload=b"{}"),
    "start_compensations": lambda db, lease: start_compensations(db, 10),
    "replay_execution": replayed,
    "wake_execution": woken,
    "count_trimmable": lambda db, lease: count_trimmable(
        db, Trim(lane_id="default", retention=0, namespace="other")
    ),
}


JOURNALS = """
INSERT INTO ff.journal (partition_key, seq, execution_id, attempt_index, started_at_ms,
                        recorded_at_ms, kind, state, name)
SELECT partition_key, 1, execution_id, 0, 0, 0, 'step', 'done', 'x' FROM ff.exec_core
"""
INBOXES = """
INSERT INTO ff.signal_inbox (partition_key, signal_seq, execution_id, signal_id, accepted_at_ms,
                             signal_name, source_type, source_identity)
SELECT partition_key, 1, execution_id, gen_random_uuid(), 0, 'x', 'user', 'ann' FROM ff.exec_core
"""


async def fetched(db: Connection, names: Sequence[str]) -> dict[str, int]:
    """How many rows each call fetches, undone again."""
    rows: dict[str, int] = {}
    for name in names:
        lease = await given.claimed(db)
        undone = db.transaction()
        await undone.start()
        before = await db.fetchval(FETCHED)
        await CALLS[name](db, lease)
        rows[name] = await db.fetchval(FETCHED) - before
        await undone.rollback()
    return rows


@pytest.mark.parametrize("before", ["SELECT 1", "VACUUM", "ANALYZE", "VACUUM ANALYZE"])
async def test_what_is_planned_while_tables_are_empty_holds_when_they_have_grown(
    db: Connection, before: str
) -> None:
    await db.execute(before)
    await given.created(db, namespace="other")
    await fetched(db, list(CALLS))
    await Queue(db).add(GROWN, state="ended", analyze=False)
    await db.execute(JOURNALS)
    await db.execute(INBOXES)

    grown = await fetched(db, list(CALLS))

    assert {name: rows for name, rows in grown.items() if rows > MOST} == {}
