"""active → terminal(cancelled): the holder ends the execution without a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.db.notifier import notifies
from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.end import end_held
from flowfabric.engine.lifecycle.sql.fence import (
    AppliedCall,
    SeenExecution,
    answers,
    held_leases,
    holding,
)
from flowfabric.errors import Refusal
from flowfabric.ids import ExecutionId, check_is_text, clean_text
from flowfabric.states import PublicState

CANCEL: Final[LiteralString] = (
    """
-- lifecycle.cancel
"""
    + held_leases(arrays="%(reason)s::text[]", names="reason")
    + holding("reason")
    + end_held(
        "holding",
        outcome="'cancelled'",
        cancellation_reason="reason",
        cancelled_by="'worker'",
        lease_reason="'cancelled'",
        bumps_epoch=True,
    )
    + """
SELECT ordinal FROM ended
"""
)


class Cancellation(msgspec.Struct, frozen=True):
    """The holder of `lease` ends the execution, for this reason."""

    lease: Lease
    reason: str

    def __post_init__(self) -> None:
        check_is_text(self.reason, field="reason")


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The execution was cancelled; `repeated` if it was cancelled before this call."""

    execution_id: ExecutionId
    public_state: PublicState = PublicState.CANCELLED
    repeated: bool = False


async def cancel(
    conn: Connection, cancellations: Sequence[Cancellation]
) -> list[Cancelled | Refusal]:
    """Cancel every execution whose lease is still held, in the order given.

    A call that the same holder repeats after a lost answer is `Cancelled` again, with nothing
    written.
    """
    leases = [cancellation.lease for cancellation in cancellations]
    ended = await fetch_all(
        conn,
        CANCEL,
        AppliedCall,
        notifies=notifies("completion"),
        reason=[clean_text(cancellation.reason) for cancellation in cancellations],
        **fence_columns(leases),
    )
    return await answers(
        conn, leases, [row.ordinal for row in ended], done=_done, done_before=_done_before
    )


def _done(lease: Lease) -> Cancelled:
    return Cancelled(execution_id=lease.execution_id)


def _done_before(lease: Lease, seen: SeenExecution) -> Cancelled | None:
    """Cancelled under this lease, by its holder or by an operator."""
    same_attempt = (seen.attempt_index, seen.lease_id) == (lease.attempt_index, lease.lease_id)
    if seen.terminal_outcome != "cancelled" or not same_attempt:
        return None
    return Cancelled(execution_id=lease.execution_id, repeated=True)
