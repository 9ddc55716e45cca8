"""terminal → runnable: members that were chosen run again, or wait for their upstreams again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.flows.unsettle_summary import unsettle_summaries
from flowfabric.engine.joins.reset_join import pass_again, reopen_edges, reset_joins
from flowfabric.engine.journal.rewind_journal import Rewound
from flowfabric.engine.lifecycle.lock_executions import LockedExecution
from flowfabric.engine.lifecycle.operator_event import operator_events
from flowfabric.engine.lifecycle.restart import restart
from flowfabric.ids import ExecutionId
from flowfabric.states import GroupState, OperatorEventType, PublicState, TerminalOutcome

STATE_AFTER: Final = {
    GroupState.SATISFIED: PublicState.WAITING,
    GroupState.IMPOSSIBLE: PublicState.SKIPPED,
}
"""The state of a member whose join was decided at once."""


class By(msgspec.Struct, frozen=True):
    """Whose replay it is, and why."""

    actor: str
    reason: str | None


async def restart_members(
    conn: Connection,
    members: Sequence[LockedExecution],
    by: By,
    *,
    waiting: Collection[ExecutionId],
    even_failed: Collection[ExecutionId] = (),
    rewound: Mapping[ExecutionId, Rewound],
) -> dict[ExecutionId, PublicState]:
    """The members are on their way again; the state of each now.

    Those in `waiting` wait for their upstreams first, and those in `even_failed` also for upstreams
    that have failed. Joins that wait for a restarted member do not count its last end. The caller
    holds the locks of `lock_joins`, has looked at `restart_refusal`, and has cut back the journals;
    the events say how.
    """
    restarted = await restart(conn, [each.id for each in members], waiting=waiting)
    await operator_events(
        conn,
        OperatorEventType.REPLAYED,
        {
            each: row.facts(groups_reset=1 if each in waiting else None)
            | (rewound[each].facts() if each in rewound else {})
            for each, row in restarted.items()
        },
        actor=by.actor,
        reason=by.reason,
    )
    flows = {(each.partition_key, each.flow_id) for each in members if each.flow_id is not None}
    if not flows:
        return {each: PublicState(row.new_public_state) for each, row in restarted.items()}
    await unsettle_summaries(conn, [*flows])
    unsuccessful = (each for each in members if each.terminal_outcome != TerminalOutcome.SUCCESS)
    await reopen_edges(conn, [each.id for each in unsuccessful if each.flow_id is not None])
    await pass_again(conn, [each.id for each in members if each.id not in waiting])
    decided = await reset_joins(conn, sorted(waiting), even_failed=even_failed)
    return {
        each: STATE_AFTER[decided[each]] if each in decided else PublicState(row.new_public_state)
        for each, row in restarted.items()
    }
