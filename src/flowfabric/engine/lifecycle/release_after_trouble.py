"""active → delayed or terminal(failed): trouble with the database kept the handler from going on.

The retry policy has no part in this: trouble uses up no retries. It has a bound of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, LiteralString

import msgspec

from flowfabric.db.notifier import notifies
from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.fail import TerminalFailed
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.by_key import execution_row
from flowfabric.engine.lifecycle.sql.end import end_held
from flowfabric.engine.lifecycle.sql.fence import (
    SeenExecution,
    answers,
    held_leases,
    holding,
    locked_if_mixed,
)
from flowfabric.engine.lifecycle.sql.requeue import requeue
from flowfabric.errors import Refusal
from flowfabric.ids import ExecutionId, clean_text
from flowfabric.instants import instant
from flowfabric.states import AttemptState, LifecyclePhase, TerminalOutcome

MAX_RELEASES: Final = 20
"""How often in a row an attempt may be released because of trouble; the next time ends it."""
_FIRST_DELAY_MS: Final = 500
_LONGEST_DELAY_MS: Final = 60_000

# The delay doubles with each release. A part of it, up to half, is taken off by a hash, so that
# executions that met the same trouble do not all start again at once.
RELEASE_AFTER_TROUBLE: Final[LiteralString] = (
    """
-- lifecycle.release_after_trouble
"""
    + held_leases(arrays="%(reason)s::text[]", names="reason")
    + holding("reason")
    + """, evaluated AS (      -- each with its delay, and whether it was released too often
    SELECT holding.*, e.infra_release_count,
           e.infra_release_count >= %(max_releases)s AS over_bound,
           (least(%(first_delay_ms)s::float8 * power(2.0::float8, infra_release_count),
                  %(longest_delay_ms)s::float8)
            * (131071 - (hashtextextended(holding.execution_id::text, infra_release_count) & 65535))
            / 131071)::bigint AS wait_ms
      FROM holding
      JOIN ff.exec_core e ON """
    + execution_row("holding.partition_key", "holding.execution_id")
    + """
     ORDER BY holding.partition_key, holding.execution_id, holding.ordinal
)"""
    + locked_if_mixed("evaluated", "troubled", ends="over_bound")
    + end_held(
        "troubled",
        where="over_bound",
        outcome="'failed'",
        failure_reason="format('released %%s times because of database trouble: %%s', "
        "infra_release_count, reason)",
        failure_category="'infra_crash'",
        lease_reason="'failed'",
    )
    + requeue(
        "troubled",
        where="NOT over_bound",
        until_ms="ff.now_ms() + wait_ms",
        waiting_for="'waiting_for_delay'",
        attempt_outcome="'interrupted'",
        infra_releases="infra_release_count + 1",
        bumps_epoch="false",
        failure_reason="reason",
        failure_category="'infra_crash'",
        lease_reason="'released'",
        by_holder=True,
    )
    + """
SELECT ordinal, true AS has_ended, NULL::bigint AS until_ms FROM ended
 UNION ALL
SELECT ordinal, false, until_ms FROM requeued
"""
)


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Why the attempt under `lease` could not go on; not a failure of its handler."""

    lease: Lease
    reason: str


class ReleasedAfterTrouble(msgspec.Struct, frozen=True, kw_only=True):
    """The same attempt starts again, not before `delay_until`."""

    execution_id: ExecutionId
    delay_until: datetime | None
    repeated: bool = False


class _Row(msgspec.Struct, frozen=True):
    ordinal: int
    has_ended: bool
    until_ms: int | None


async def release_after_trouble(
    conn: Connection, troubles: Sequence[Trouble]
) -> list[ReleasedAfterTrouble | TerminalFailed | Refusal]:
    """Requeue every execution whose lease is still held, in the order given, with a delay.

    The delay grows with each release in a row. An execution that was released `MAX_RELEASES` times
    fails instead, as `infra_crash`. Neither retries nor reclaims are counted. A call that the same
    holder repeats after a lost answer gets the first answer again.
    """
    rows = await fetch_all(
        conn,
        RELEASE_AFTER_TROUBLE,
        _Row,
        notifies=notifies("completion"),
        reason=[clean_text(trouble.reason) for trouble in troubles],
        max_releases=MAX_RELEASES,
        first_delay_ms=_FIRST_DELAY_MS,
        longest_delay_ms=_LONGEST_DELAY_MS,
        **fence_columns([trouble.lease for trouble in troubles]),
    )
    decisions = {troubles[row.ordinal - 1].lease: row for row in rows}
    return await answers(
        conn,
        [trouble.lease for trouble in troubles],
        [row.ordinal for row in rows],
        done=lambda lease: _done(lease, decisions[lease]),
        done_before=_done_before,
    )


def _done(lease: Lease, row: _Row) -> ReleasedAfterTrouble | TerminalFailed:
    if row.has_ended:
        return TerminalFailed(execution_id=lease.execution_id)
    return ReleasedAfterTrouble(execution_id=lease.execution_id, delay_until=instant(row.until_ms))


def _done_before(lease: Lease, seen: SeenExecution) -> ReleasedAfterTrouble | TerminalFailed | None:
    if not seen.was_ended_by(lease):
        return None
    if seen.terminal_outcome == TerminalOutcome.FAILED:
        return TerminalFailed(execution_id=lease.execution_id, repeated=True)
    if (
        seen.lifecycle_phase == LifecyclePhase.RUNNABLE
        and seen.attempt_state == AttemptState.ATTEMPT_INTERRUPTED
    ):
        return ReleasedAfterTrouble(
            execution_id=lease.execution_id, delay_until=instant(seen.delay_until_ms), repeated=True
        )
    return None
