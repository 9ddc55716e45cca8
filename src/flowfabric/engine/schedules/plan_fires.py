"""What becomes of the instants of a schedule that are due: fired, skipped, missed or refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec

from flowfabric.engine.schedules.overlap import OpenExecution, decide_overlap, kept_latest
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.schedules.next_after import next_after
from flowfabric.schedules.spec import ScheduleSpec
from flowfabric.states import ScheduleOutcome, ScheduleOverlap

ON_TIME_MS: Final = 60_000
"""An instant that is due for no longer than this is fired, whatever `catch_up` says."""
LISTED: Final = 100
"""How many missed instants, the newest, get a row in the ledger."""
NO_TRIGGER: Final = UUID(int=0)
"""The trigger of an instant of the schedule itself."""
SLICE: Final = 1000
"""How many missed instants are counted at once."""


class DueSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that is due: what decides about its instants."""

    name: str
    namespace: str
    spec: ScheduleSpec
    first_ms: int
    """The first instant that is due."""
    overlap: ScheduleOverlap
    catch_up: int
    catch_up_window_ms: int
    until_ms: int | None
    runs_left: int | None
    refusal: str | None
    """Why no execution can be created, if that is so."""
    backfilled: frozenset[int] = frozenset()
    """The instants, of those that are due, whose executions a backfill has created."""
    latest: Sequence[ExecutionId]
    running: Sequence[OpenExecution]


class PlannedFire(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one instant."""

    fire_at_ms: int
    outcome: ScheduleOutcome
    execution_id: ExecutionId | None = None
    held: bool = False
    supersedes: Sequence[ExecutionId] = ()
    reason: str | None = None


class FirePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of every instant that is due, and the instant that comes next."""

    fires: list[PlannedFire]
    """In the order of the instants, with the missed ones that are listed."""
    missed: int
    next_ms: int | None
    runs_left: int | None
    latest: list[ExecutionId]

    def count(self, outcome: ScheduleOutcome) -> int:
        return sum(fire.outcome is outcome for fire in self.fires)


def plan_fires(due: DueSchedule, now_ms: int, *, partitions: int) -> FirePlan:
    """What becomes of the instants of a schedule up to now.

    Of more instants than `SLICE` the oldest are counted as missed, and the next call goes on behind
    them. Those that a backfill has fired are passed over. Raises what `next_after` raises.
    """
    instants, next_ms = _due_instants(due, now_ms)
    left = [at for at in instants if at not in due.backfilled]
    if next_ms is not None and next_ms <= now_ms:
        return _plan(due, [], [], len(left), next_ms, partitions)
    caught_up = set(instants[-due.catch_up :] if due.catch_up else [])
    fired = [
        at
        for at in left
        if now_ms - at <= ON_TIME_MS or (at in caught_up and now_ms - at < due.catch_up_window_ms)
    ]
    missed = sorted(set(left) - set(fired))
    return _plan(due, fired, missed[-LISTED:], len(missed), next_ms, partitions)


def mint_execution(
    namespace: str, name: str, at_ms: int, trigger_id: UUID = NO_TRIGGER, *, partitions: int
) -> ExecutionId:
    """A new id for the execution of an instant, in the partition of its key."""
    key = fire_key(name, at_ms, trigger_id)
    return ExecutionId.mint(namespace=namespace, idempotency_key=key, partitions=partitions)


def fire_key(name: str, at_ms: int, trigger_id: UUID = NO_TRIGGER) -> str:
    """The idempotency key of the execution of one instant, or of a trigger."""
    if trigger_id != NO_TRIGGER:
        return f"schedule:{name}:trigger:{trigger_id}"
    return f"schedule:{name}:{instant_text(at_ms)}"


def instant_text(at_ms: int) -> str:
    """The instant as tags and keys have it: 2027-01-05T02:00:00Z."""
    spec = "seconds" if at_ms % 1000 == 0 else "milliseconds"
    return instant(at_ms).isoformat(timespec=spec).replace("+00:00", "Z")


def _due_instants(due: DueSchedule, now_ms: int) -> tuple[list[int], int | None]:
    """The instants that are due, and the one that follows.

    If there are many, the oldest `SLICE` alone: none of them is caught up or listed, because enough
    newer ones follow.
    """
    last = now_ms if due.until_ms is None else min(now_ms, due.until_ms)
    limit = SLICE + due.catch_up + LISTED
    found = [due.first_ms]
    while (following := next_after(due.spec, found[-1])) is not None and following <= last:
        if len(found) == limit:
            return found[:SLICE], found[SLICE]
        found.append(following)
    if following is not None and due.until_ms is not None and following > due.until_ms:
        following = None
    return found, following


def _plan(
    due: DueSchedule,
    fired: Sequence[int],
    listed: Sequence[int],
    missed: int,
    next_ms: int | None,
    partitions: int,
) -> FirePlan:
    late = "not fired in time, and not caught up"
    fires = [
        PlannedFire(fire_at_ms=at, outcome=ScheduleOutcome.MISSED, reason=late) for at in listed
    ]
    running, latest, runs_left = list(due.running), list(due.latest), due.runs_left
    for at in fired:
        fire = _fire(due, at, running, partitions)
        fires.append(fire)
        if fire.execution_id is None:
            continue
        latest.append(fire.execution_id)
        if fire.supersedes:
            running.clear()
        running.append(OpenExecution(fire.execution_id, fire.held))
        if runs_left is not None:
            runs_left -= 1
            if runs_left == 0:
                next_ms = None
                break
    return FirePlan(
        fires=fires,
        missed=missed,
        next_ms=next_ms,
        runs_left=runs_left,
        latest=kept_latest(latest, running),
    )


def _fire(
    due: DueSchedule, at_ms: int, running: Sequence[OpenExecution], partitions: int
) -> PlannedFire:
    if due.refusal is not None:
        return PlannedFire(fire_at_ms=at_ms, outcome=ScheduleOutcome.REFUSED, reason=due.refusal)
    decision = decide_overlap(due.overlap, running)
    if not decision.fires:
        return PlannedFire(
            fire_at_ms=at_ms, outcome=ScheduleOutcome.SKIPPED, reason=decision.reason
        )
    return PlannedFire(
        fire_at_ms=at_ms,
        outcome=ScheduleOutcome.FIRED,
        execution_id=mint_execution(due.namespace, due.name, at_ms, partitions=partitions),
        held=decision.held,
        supersedes=decision.supersedes,
    )
