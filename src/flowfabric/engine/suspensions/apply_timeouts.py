"""What the timeout of a suspension does: the execution ends, goes on, or waits for an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.escalate import escalate
from flowfabric.engine.lifecycle.resume import Resume, resume
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.engine.suspensions.waitpoint import StoredSignal, encode_signals
from flowfabric.ids import ExecutionId, new_uuid
from flowfabric.states import FailureClass, TerminalOutcome, TimeoutBehavior

TIMEOUT_SIGNAL: Final = "timeout"
"""The name of the signal that resumes an execution when its suspension times out."""


class _Ending(msgspec.Struct, frozen=True):
    outcome: TerminalOutcome
    reason: str
    cancellation_reason: str
    close_reason: str


_ENDINGS: Final = {
    TimeoutBehavior.FAIL: _Ending(
        TerminalOutcome.FAILED,
        "suspension_timeout:fail",
        "suspension_timeout_fail",
        "timed_out_fail",
    ),
    TimeoutBehavior.CANCEL: _Ending(
        TerminalOutcome.CANCELLED,
        "suspension_timeout_cancel",
        "suspension_timeout_cancel",
        "timed_out_cancel",
    ),
    TimeoutBehavior.EXPIRE: _Ending(
        TerminalOutcome.EXPIRED,
        "suspension_timeout_expire",
        "suspension_timeout_expire",
        "timed_out_expire",
    ),
}


class DueSuspension(msgspec.Struct, frozen=True):
    """An open suspension whose timeout has passed."""

    partition_key: int
    execution_id: UUID
    timeout_behavior: str
    now_ms: int

    @property
    def id(self) -> ExecutionId:
        return ExecutionId(self.partition_key, self.execution_id)

    @property
    def behavior(self) -> TimeoutBehavior:
        return TimeoutBehavior(self.timeout_behavior)


async def apply_timeouts(conn: Connection, due: Sequence[DueSuspension]) -> None:
    """Each execution ends, is claimable with a signal `timeout`, or waits for an operator.

    The caller has locked the executions and read the suspensions under the locks.
    """
    for behavior, ending in _ENDINGS.items():
        ended = [each.id for each in due if each.behavior is behavior]
        if ended:
            await terminalize(
                conn,
                ended,
                outcome=ending.outcome,
                reason=ending.reason,
                cancellation_reason=ending.cancellation_reason,
                category=FailureClass.TIMEOUT.value,
                by="suspension_timeout",
                close_reason=ending.close_reason,
            )
    resumed = [each for each in due if each.behavior is TimeoutBehavior.AUTO_RESUME]
    await resume(conn, [_resume(each) for each in resumed], close_reason="timed_out_auto_resume")
    await escalate(conn, [each.id for each in due if each.behavior is TimeoutBehavior.ESCALATE])


def _resume(due: DueSuspension) -> Resume:
    signal = StoredSignal(
        signal_id=new_uuid(),
        signal_name=TIMEOUT_SIGNAL,
        signal_category="system",
        source_type="system",
        source_identity="suspension_timeout",
        correlation_id="",
        accepted_at=due.now_ms,
        payload_hex=None,
    )
    return Resume(
        execution_id=due.id,
        closer_signal_id=signal.signal_id,
        satisfiers=encode_signals([signal]),
    )
