"""Decided joins take effect: waiters go on or are skipped, results are passed on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.joins.queue_siblings import queue_siblings
from flowfabric.engine.joins.resolve_edges import Decision
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.pass_results import pass_results
from flowfabric.engine.lifecycle.promote_dependents import promote_dependents
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.ids import ExecutionId
from flowfabric.states import GroupState, OnSatisfied, TerminalOutcome

IMPOSSIBLE: Final = "dependency_impossible"


OWED: Final[LiteralString] = """
-- joins.pending_cancels
SELECT m.partition_key, m.execution_id
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS named (partition_key, execution_id)
  JOIN ff.cancel_backlog_member m USING (partition_key, execution_id)
"""


class _Owed(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID


async def pending_cancels(conn: Connection, executions: Sequence[ExecutionId]) -> set[ExecutionId]:
    """Those that a cancelled flow is about to end."""
    rows = await fetch_all(
        conn,
        OWED,
        _Owed,
        partition_key=[each.partition_key for each in executions],
        execution_id=[each.uuid for each in executions],
    )
    return {ExecutionId(row.partition_key, row.execution_id) for row in rows}


async def apply_decisions(conn: Connection, decisions: Sequence[Decision]) -> bool:
    """Results are passed on, downstreams promoted or skipped, siblings queued for their cancel.

    A downstream that its cancelled flow still owes an end is left to that. True if siblings may be
    queued now.
    """
    fed = list(_fed(decisions))
    fired = [each for each in decisions if each.decision != GroupState.PENDING]
    ready = [
        each.target
        for each in fired
        if not each.owed and (each.decision == GroupState.SATISFIED or each.wakes is not None)
    ]
    lost = [
        each.target
        for each in fired
        if not each.owed and each.decision == GroupState.IMPOSSIBLE and each.wakes is None
    ]
    if fed or lost:
        # In one order. Nobody is listed for a cancel while it is locked: who is by now stays so,
        # and who has ended is fed nothing.
        await lock_executions(conn, [*{*(target for _, target in fed), *ready, *lost}])
    if fed:
        await pass_results(conn, fed)
    if ready:
        await promote_dependents(conn, ready)
    if lost:
        listed = await pending_cancels(conn, lost)
        skipped = [each for each in lost if each not in listed]
        await terminalize(conn, skipped, outcome=TerminalOutcome.SKIPPED, reason=IMPOSSIBLE)
    unneeded = [
        (ExecutionId(each.partition_key, each.downstream_eid), GroupState(each.decision))
        for each in fired
        if each.on_satisfied == OnSatisfied.CANCEL_REMAINING
    ]
    await queue_siblings(conn, unneeded)
    return bool(unneeded)


def _fed(decisions: Sequence[Decision]) -> Iterable[tuple[ExecutionId, ExecutionId]]:
    for each in decisions:
        for source in each.sources or ():
            yield ExecutionId(each.partition_key, source), each.target
