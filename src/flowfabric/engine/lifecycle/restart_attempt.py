"""active → runnable: the handler begins anew, with other arguments, as the next attempt."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.by_key import open_waitpoints
from flowfabric.engine.lifecycle.sql.fence import (
    AppliedCall,
    SeenExecution,
    answers,
    held_leases,
    holding,
)
from flowfabric.engine.lifecycle.sql.requeue import requeue
from flowfabric.engine.lifecycle.sql.submitted import SUBMITTED_KEPT
from flowfabric.errors import Refusal
from flowfabric.ids import ExecutionId
from flowfabric.states import AttemptState, LifecyclePhase

KEPT_ATTEMPTS: Final = 100
"""How many attempts of an execution that restarts are kept."""

RESTART_ATTEMPT: Final[LiteralString] = (
    """
-- lifecycle.restart_attempt
"""
    + held_leases()
    + holding()
    + requeue(
        "holding",
        attempt_outcome="'restarted'",
        next_attempt_state="'pending_first_attempt'",
        begins_anew="true",
        infra_releases="0",
        bumps_epoch="false",
        lease_reason="'restarted'",
        by_holder=True,
    )
    + """, body_replaced AS (
    UPDATE ff.exec_body b
       SET payload = %(payload)s, payload_encoding = %(payload_encoding)s,
           """
    + SUBMITTED_KEPT
    + """
      FROM requeued
     WHERE b.partition_key = ANY (ARRAY[requeued.partition_key])
       AND b.execution_id = requeued.execution_id
), attempts_deleted AS (
    DELETE FROM ff.attempt a USING requeued
     WHERE a.partition_key = ANY (ARRAY[requeued.partition_key])
       AND a.execution_id = requeued.execution_id
       AND a.attempt_index <= requeued.attempt_index - %(kept)s
), waitpoints_closed AS (   -- no later call of the handler can wait for them
    UPDATE ff.waitpoint_pending w
       SET state = 'closed', closed_at_ms = ff.now_ms(), close_reason = 'restarted'
      FROM requeued
     WHERE """
    + open_waitpoints("requeued.partition_key", "requeued.execution_id")
    + """
)
SELECT ordinal FROM requeued
"""
)


class RestartedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """The execution is claimable, with its new arguments, as the next attempt."""

    execution_id: ExecutionId
    repeated: bool = False


async def restart_attempt(
    conn: Connection, lease: Lease, *, payload: bytes, payload_encoding: str | None
) -> RestartedAttempt | Refusal:
    """End the attempt as `restarted`; the next one begins with `payload` and fresh retries.

    Its waitpoints are closed: an outsider who comes late with a token hears so.
    A call that the same holder repeats after a lost answer gets the first answer again.
    """
    rows = await fetch_all(
        conn,
        RESTART_ATTEMPT,
        AppliedCall,
        payload=payload,
        payload_encoding=payload_encoding,
        kept=KEPT_ATTEMPTS,
        **fence_columns([lease]),
    )
    [answer] = await answers(
        conn,
        [lease],
        [row.ordinal for row in rows],
        done=lambda held: RestartedAttempt(execution_id=held.execution_id),
        done_before=_done_before,
    )
    return answer


def _done_before(lease: Lease, seen: SeenExecution) -> RestartedAttempt | None:
    if (
        (seen.attempt_index, seen.lease_epoch, seen.lease_id)
        == (lease.attempt_index + 1, lease.lease_epoch, lease.lease_id)
        and seen.lifecycle_phase == LifecyclePhase.RUNNABLE
        and seen.attempt_state == AttemptState.PENDING_FIRST_ATTEMPT
    ):
        return RestartedAttempt(execution_id=lease.execution_id, repeated=True)
    return None
