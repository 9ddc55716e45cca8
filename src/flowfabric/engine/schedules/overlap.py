"""Whether an instant fires while an earlier execution of its schedule has not ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from flowfabric.ids import ExecutionId
from flowfabric.states import ScheduleOverlap

LATEST: Final = 10
"""How many of the last executions of a schedule are looked at."""
MAX_QUEUE: Final = 1000
"""How many executions of a schedule may wait for their turn."""


class OpenExecution(msgspec.Struct, frozen=True):
    """One of the last executions of a schedule that has not ended."""

    execution_id: ExecutionId
    held: bool
    """Does it wait for its turn?"""


class OverlapDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of an instant."""

    fires: bool = True
    held: bool = False
    """The execution is created, and waits until every earlier one has ended."""
    supersedes: Sequence[ExecutionId] = ()
    """The executions that are cancelled."""
    reason: str | None = None
    """Why it does not fire."""


def decide_overlap(overlap: ScheduleOverlap, running: Sequence[OpenExecution]) -> OverlapDecision:
    """What an instant does, given the executions that have not ended, the oldest first."""
    if not running:
        return OverlapDecision()
    match overlap:
        case ScheduleOverlap.ALLOW:
            return OverlapDecision()
        case ScheduleOverlap.SKIP:
            first = running[0].execution_id
            return OverlapDecision(fires=False, reason=f"{first} has not ended")
        case ScheduleOverlap.QUEUE_ONE if waiting := [each for each in running if each.held]:
            first = waiting[0].execution_id
            return OverlapDecision(fires=False, reason=f"{first} waits for its turn already")
        case ScheduleOverlap.QUEUE_ALL if len(running) > MAX_QUEUE:
            why = f"{MAX_QUEUE} executions wait for their turn already"
            return OverlapDecision(fires=False, reason=why)
        case ScheduleOverlap.QUEUE_ONE | ScheduleOverlap.QUEUE_ALL:
            return OverlapDecision(held=True)
        case ScheduleOverlap.CANCEL_RUNNING:
            return OverlapDecision(supersedes=[each.execution_id for each in running])


def kept_latest(
    latest: Sequence[ExecutionId], running: Sequence[OpenExecution]
) -> list[ExecutionId]:
    """Of the executions so far, the oldest first: the last ten, and older ones that are waited for.

    Only where executions wait for their turn are more than ten of interest.
    """
    first = max(0, len(latest) - LATEST)
    if any(each.held for each in running):
        open_ids = {each.execution_id for each in running}
        oldest_open = next((n for n, each in enumerate(latest) if each in open_ids), first)
        first = min(first, oldest_open)
    return list(latest[first:])
