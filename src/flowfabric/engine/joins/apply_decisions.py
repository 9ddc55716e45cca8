"""Decided joins take effect: waiters go on or are skipped, results are passed, siblings listed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.joins.pass_to_waiters import Passing, pass_to_waiters
from flowfabric.engine.joins.queue_siblings import queue_siblings
from flowfabric.engine.joins.resolve_edges import Decision
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.promote_dependents import promote_dependents
from flowfabric.engine.lifecycle.resume_waiting import resume_waiting
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.ids import ExecutionId, id_columns
from flowfabric.states import GroupState, OnSatisfied, TerminalOutcome

IMPOSSIBLE: Final = "dependency_impossible"

PENDING_CANCELS: Final[LiteralString] = """
-- joins.pending_cancels
SELECT m.partition_key, m.execution_id
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS named (partition_key, execution_id)
  JOIN ff.cancel_backlog_member m USING (partition_key, execution_id)
"""


class _Member(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID


async def apply_decisions(conn: Connection, decisions: Sequence[Decision]) -> bool:
    """Results are passed on, waiters promoted or skipped, unneeded siblings listed for cancel.

    A suspended handler that waits for one of the joins is resumed. A waiter that its cancelled flow
    is about to end is left to that cancel. True if siblings may be listed now.
    """
    passed = [
        Passing(ExecutionId(each.partition_key, source), each.group, each.waiter)
        for each in decisions
        for source in each.sources or ()
    ]
    promoted = [
        each.waiter for each in decisions if each.lets_waiter_run and not each.cancel_pending
    ]
    impossible = [
        each.waiter
        for each in decisions
        if each.is_decided and not each.lets_waiter_run and not each.cancel_pending
    ]
    if passed or impossible:
        # All in one order. A cancel cannot list a waiter while it is locked here; a waiter that has
        # ended meanwhile gets no results.
        waiters = {*(each.waiter for each in passed), *promoted, *impossible}
        await lock_executions(conn, [*waiters])
    if passed:
        await pass_to_waiters(conn, passed)
    if promoted and (await promote_dependents(conn, promoted)).suspended:
        decided = [(each.waiter, each.group_id) for each in decisions if each.lets_waiter_run]
        await resume_waiting(conn, decided)
    if impossible:
        listed = await pending_cancels(conn, impossible)
        skipped = [each for each in impossible if each not in listed]
        await terminalize(conn, skipped, outcome=TerminalOutcome.SKIPPED, reason=IMPOSSIBLE)
    unneeded = [
        (each.group, GroupState(each.decision))
        for each in decisions
        if each.is_decided and each.on_satisfied == OnSatisfied.CANCEL_REMAINING
    ]
    await queue_siblings(conn, unneeded)
    return bool(unneeded)


async def pending_cancels(conn: Connection, executions: Sequence[ExecutionId]) -> set[ExecutionId]:
    """Those of the executions that a cancelled flow is about to end."""
    rows = await fetch_all(
        conn,
        PENDING_CANCELS,
        _Member,
        **id_columns(executions),
    )
    return {ExecutionId(row.partition_key, row.execution_id) for row in rows}
