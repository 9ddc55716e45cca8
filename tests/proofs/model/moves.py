"""What submitters and workers do, in the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from flowfabric.engine.lifecycle.cancel import Cancellation, Cancelled
from flowfabric.engine.lifecycle.claim import Claimant, Claimed
from flowfabric.engine.lifecycle.complete import Completed, Completion
from flowfabric.engine.lifecycle.create_execution import Created, Duplicate, NewExecution
from flowfabric.engine.lifecycle.delay import Delayed, DelayRequest
from flowfabric.engine.lifecycle.fail import Failure, RetryScheduled, TerminalFailed
from flowfabric.engine.lifecycle.lease import Lease, LeaseHandleKind
from flowfabric.engine.lifecycle.release import Released
from flowfabric.errors import (
    ExecutionNotActive,
    LaneNotAccepting,
    LeaseExpired,
    NotFound,
    StaleLease,
    invalid_input,
)
from flowfabric.ids import attempt_id, key_partition
from flowfabric.instants import instant
from flowfabric.policy import DAY_MS, ExecutionPolicy, FixedBackoff, milliseconds
from flowfabric.states import AttemptType
from tests.proofs.model.records import NAMESPACE, Execution, World

CLOSED = ("draining", "disabled")
STARTING = ("active", "draining")
ATTEMPTS = {"pending_retry_attempt": "retry", "pending_replay_attempt": "replay"}


def refuse_closed(world: World, lanes: Iterable[str]) -> None:
    """Of several lanes that take no new work the first by name is told."""
    closed = min((each for each in lanes if world.lanes.get(each) in CLOSED), default=None)
    if closed is not None:
        raise LaneNotAccepting(closed, world.lanes[closed])


def create_execution(world: World, news: Sequence[NewExecution]) -> list[Created | Duplicate]:
    """Rows 1 and 2 of the drawn machine; a closed lane refuses whatever is new."""
    for new in news:
        if new.idempotency_key is not None:
            home = key_partition(NAMESPACE, new.idempotency_key)
            if new.execution_id.partition_key != home:
                raise invalid_input("execution_id", str(new.execution_id), "is not at home")
    answers: list[Created | Duplicate] = []
    made: list[Execution] = []
    keys = dict(world.keys)
    for new in news:
        taken = _stands_for(world, keys, new, {each.execution_id for each in made})
        if taken is not None:
            answers.append(Duplicate(execution_id=taken))
            continue
        made.append(execution(world, new))
        answers.append(Created(execution_id=new.execution_id, public_state=made[-1].state))
    refuse_closed(world, (each.lane_id for each in made))
    world.keys = keys
    for new in news:
        world.lanes.setdefault(new.lane_id, "active")
    world.executions |= {each.execution_id: each for each in made}
    return answers


def _stands_for(world: World, keys: dict[str, Any], new: NewExecution, made: set[Any]) -> Any:
    """The execution that has the id or the key already."""
    exists = new.execution_id in world.executions or new.execution_id in made
    if new.idempotency_key is not None:
        kept = keys.get(new.idempotency_key)
        if kept is not None and kept[1] > world.now_ms:
            return kept[0]
        if not exists:
            window = DAY_MS if new.policy is None else milliseconds(new.policy.dedup_window)
            keys[new.idempotency_key] = (new.execution_id, world.now_ms + window)
    return new.execution_id if exists else None


def execution(world: World, new: NewExecution) -> Execution:
    """An execution as it is when it is new."""
    now = world.now_ms
    until = None if new.delay is None else now + milliseconds(new.delay)
    later = until if until is not None and until > now else None
    made = Execution(
        execution_id=new.execution_id,
        lane_id=new.lane_id,
        execution_kind=new.execution_kind,
        required_capabilities=new.required_capabilities,
        priority=max(0, min(9000, new.priority)),
        created_at_ms=now,
        last_mutation_at_ms=now,
        eligibility_state="eligible_now",
        blocking_reason="waiting_for_worker",
        payload=new.input_payload,
        policy=new.policy,
        idempotency_key=new.idempotency_key,
        deadline_at_ms=_deadline(now, new),
        deadline_from_ms=now,
        flow_id=new.flow_id,
    )
    if new.hold:
        made.waits("blocked_by_dependencies", "waiting_for_children")
        made.not_before_ms = later
    elif later is not None:
        made.waits("not_eligible_until_time", "waiting_for_delay")
        made.delay_until_ms = later
    return made


def _deadline(now: int, new: NewExecution) -> int | None:
    if new.deadline is not None:
        return now + milliseconds(new.deadline)
    timeouts = None if new.policy is None else new.policy.timeout_policy
    if timeouts is None or timeouts.execution_deadline is None:
        return None
    return now + milliseconds(timeouts.execution_deadline)


def claim(
    world: World, claimant: Claimant, *, ttl_ms: int, limit: int, lease_id: UUID
) -> list[Claimed]:
    """The best that the claimant can run: by priority, then age, then id."""
    fit = [
        each
        for each in world.executions.values()
        if each.eligibility_state == "eligible_now"
        and not each.is_late(world.now_ms)
        and each.lane_id in claimant.lanes
        and world.lanes[each.lane_id] in STARTING
        and (claimant.kinds is None or each.execution_kind in claimant.kinds)
        and set(each.required_capabilities) <= set(claimant.capabilities)
    ]
    best = sorted(fit, key=lambda each: each.place)[:limit]
    who = claimant.worker_id, claimant.worker_instance_id
    return [lease(world, each, *who, ttl_ms=ttl_ms, lease_id=lease_id) for each in best]


def lease(
    world: World, each: Execution, worker: str, instance: str, *, ttl_ms: int, lease_id: UUID
) -> Claimed:
    """Rows 9 and 10: the execution is held under a new epoch."""
    now = world.now_ms
    goes_on = each.attempt_state == "attempt_interrupted"
    if not goes_on:
        first = "restart" if each.attempt_index else "initial"
        each.attempt_type = ATTEMPTS.get(each.attempt_state, first)
    each.lifecycle_phase, each.attempt_state = "active", "running_attempt"
    each.waits("not_applicable", "none")
    each.blocking_detail, each.resume_pending = None, False
    each.lease_epoch += 1
    each.lease_id, each.worker_id, each.worker_instance_id = lease_id, worker, instance
    each.lease_expires_at_ms = now + ttl_ms
    each.started_at_ms = now if each.started_at_ms is None else each.started_at_ms
    each.total_attempt_count = max(each.total_attempt_count, each.attempt_index + 1)
    each.lease_reclaim_count += each.lease_lost
    each.lease_lost = False
    timeouts = None if each.policy is None else each.policy.timeout_policy
    limit = None if timeouts is None else timeouts.attempt_timeout
    allowed = None if limit is None else milliseconds(limit)
    each.attempt_timeout_at_ms = None if allowed is None else now + allowed
    world.touch(each)
    left = None if each.deadline_at_ms is None else (each.deadline_at_ms - now) / 1000
    return Claimed(
        claimed_at=instant(world.now_ms),
        lease=Lease(each.execution_id, each.attempt_index, each.lease_epoch, lease_id),
        lane_id=each.lane_id,
        execution_kind=each.execution_kind,
        input_payload=each.payload,
        payload_encoding=None,
        tags={},
        attempt_type=AttemptType(each.attempt_type),
        total_attempt_count=each.total_attempt_count,
        attempt_timeout=None if allowed is None else allowed / 1000,
        deadline=left,
        flow_id=each.flow_id,
        kind=LeaseHandleKind.RESUMED if goes_on else LeaseHandleKind.FRESH,
    )


# The fence, and what its holders do.


def refusal(world: World, held: Lease) -> Any:
    """Why the lease may not write, or None."""
    seen = world.executions.get(held.execution_id)
    if seen is None:
        return NotFound("execution", held.execution_id)
    if seen.lifecycle_phase != "active":
        return ExecutionNotActive(
            held.execution_id,
            lifecycle_phase=seen.lifecycle_phase,
            terminal_outcome=seen.terminal_outcome,
            lease_epoch=seen.lease_epoch,
            attempt_id=attempt_id(held.execution_id, seen.attempt_index),
        )
    if held.attempt_index > seen.attempt_index:
        return NotFound("attempt", f"{held.attempt_index} of {held.execution_id}")
    if not was_left_by(seen, held):
        return StaleLease(held.execution_id, held=held.lease_epoch, current=seen.lease_epoch)
    if seen.lease_expires_at_ms is None or seen.lease_expires_at_ms <= world.now_ms:
        return LeaseExpired(held.execution_id, lease_epoch=held.lease_epoch)
    return None


def was_left_by(seen: Execution, held: Lease) -> bool:
    """Is it the last lease that the execution had, with nothing after it?"""
    return (seen.attempt_index, seen.lease_epoch, seen.lease_id) == (
        held.attempt_index,
        held.lease_epoch,
        held.lease_id,
    )


def _held(
    world: World,
    leases: Sequence[Lease],
    does: Callable[[int, Execution], Any],
    before: Callable[[Execution, Lease], Any] = lambda _seen, _held: None,
) -> list[Any]:
    """What each holder is told; all are judged by what stood before any of them did anything."""
    answers: list[Any] = [refusal(world, each) for each in leases]
    for number, each in enumerate(leases):
        seen = world.executions.get(each.execution_id)
        if answers[number] is not None and seen is not None:
            answers[number] = before(seen, each) or answers[number]
    done: dict[Lease, Any] = {}
    for number, each in enumerate(leases):
        if answers[number] is None:
            if each not in done:
                done[each] = does(number, world.executions[each.execution_id])
            answers[number] = done[each]
    return answers


def renew(world: World, leases: Sequence[Lease], *, ttl_ms: int) -> list[Any]:
    def prolong(_: int, each: Execution) -> None:
        each.lease_expires_at_ms = world.now_ms + ttl_ms
        world.touch(each)

    return _held(world, leases, prolong)


def progress(world: World, held: Lease, *, percent: int | None, message: str | None) -> Any:
    def note(_: int, each: Execution) -> None:
        each.progress_pct = each.progress_pct if percent is None else percent
        each.progress_message = each.progress_message if message is None else message
        world.touch(each)

    return _held(world, [held], note)[0]


def complete(world: World, completions: Sequence[Completion]) -> list[Any]:
    def end(number: int, each: Execution) -> Completed:
        world.terminalize([each], "success", rotates=False, closes=False)
        each.result = completions[number].result
        return Completed(execution_id=each.execution_id)

    def before(seen: Execution, held: Lease) -> Completed | None:
        same = seen.terminal_outcome == "success" and was_left_by(seen, held)
        return Completed(execution_id=seen.execution_id, repeated=True) if same else None

    return _held(world, [each.lease for each in completions], end, before)


def max_retries(policy: ExecutionPolicy | None) -> int:
    retry = None if policy is None else policy.retry_policy
    return 0 if retry is None else retry.max_retries


def retries_left(policy: ExecutionPolicy | None, retry_count: int) -> bool:
    return retry_count < max_retries(policy)


def backoff_ms(policy: ExecutionPolicy | None, retry_count: int) -> int:
    retry = None if policy is None else policy.retry_policy
    if retry is None:
        return 0
    if isinstance(retry.backoff, FixedBackoff):
        return milliseconds(retry.backoff.delay)
    grown = milliseconds(retry.backoff.initial_delay) * retry.backoff.multiplier**retry_count
    return int(min(grown, milliseconds(retry.backoff.max_delay)))


def fail(world: World, failure: Failure) -> Any:
    held = failure.lease

    def give_up(_: int, each: Execution) -> RetryScheduled | TerminalFailed:
        listed = (
            ()
            if each.policy is None or each.policy.retry_policy is None
            else (each.policy.retry_policy.retryable_categories)
        )
        retries = (
            failure.category in ("transient", "infra_crash")
            and retries_left(each.policy, each.retry_count)
            and (not listed or failure.category in listed)
        )
        attempts = held.attempt_index + 1 - each.retry_count + max_retries(each.policy)
        if not retries:
            why, kind = failure.reason, failure.category
            world.terminalize(
                [each], "failed", reason=why, category=kind, rotates=False, closes=False
            )
            return TerminalFailed(execution_id=each.execution_id, max_attempts=attempts)
        after = failure.retry_after
        own = None if after is None else milliseconds(after)
        wait = backoff_ms(each.policy, each.retry_count) if own is None else own
        until = retry(world, each, wait, failure.reason, failure.category, rotates=False)
        return RetryScheduled(
            execution_id=each.execution_id,
            delay_until=instant(until),
            next_attempt_index=held.attempt_index + 1,
            max_attempts=attempts,
        )

    def before(seen: Execution, held: Lease) -> RetryScheduled | TerminalFailed | None:
        if seen.terminal_outcome == "failed" and was_left_by(seen, held):
            return TerminalFailed(execution_id=seen.execution_id, repeated=True)
        same = (seen.lease_epoch, seen.lease_id) == (held.lease_epoch, held.lease_id)
        later = seen.attempt_index == held.attempt_index + 1
        if same and later and seen.attempt_state == "pending_retry_attempt":
            return RetryScheduled(
                execution_id=seen.execution_id,
                delay_until=instant(seen.delay_until_ms),
                next_attempt_index=seen.attempt_index,
                repeated=True,
            )
        return None

    return _held(world, [held], give_up, before)[0]


def retry(
    world: World, each: Execution, wait_ms: int, reason: str, category: str, *, rotates: bool
) -> int | None:
    """Row 14: another attempt follows; the moment before which it does not."""
    until = world.now_ms + wait_ms if wait_ms > 0 else None
    world.relinquish(
        each,
        until_ms=until,
        waiting_for="waiting_for_retry_backoff",
        attempt_state="pending_retry_attempt",
        rotates=rotates,
    )
    each.failure_reason, each.failure_category = reason, category
    return until


def delay(world: World, rest: DelayRequest) -> Any:
    def park(_: int, each: Execution) -> Delayed:
        until = world.now_ms + milliseconds(rest.delay or 0)
        world.relinquish(each, until_ms=until, waiting_for="waiting_for_delay")
        return Delayed(execution_id=each.execution_id)

    return _held(world, [rest.lease], park)[0]


def release(world: World, leases: Sequence[Lease]) -> list[Any]:
    def hand_back(_: int, each: Execution) -> Released:
        world.relinquish(each, rotates=True)
        return Released(execution_id=each.execution_id)

    return _held(world, leases, hand_back)


def cancel(world: World, cancellation: Cancellation) -> Any:
    def stop(_: int, each: Execution) -> Cancelled:
        why = cancellation.reason
        world.terminalize([each], "cancelled", reason=why, by="worker", closes=False)
        return Cancelled(execution_id=each.execution_id)

    def before(seen: Execution, held: Lease) -> Cancelled | None:
        last = (seen.attempt_index, seen.lease_id) == (held.attempt_index, held.lease_id)
        if seen.terminal_outcome != "cancelled" or not last:
            return None
        return Cancelled(execution_id=seen.execution_id, repeated=True)

    return _held(world, [cancellation.lease], stop, before)[0]
