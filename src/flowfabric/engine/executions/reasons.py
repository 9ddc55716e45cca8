"""Makes the reasons of an explanation from the facts about an execution."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from flowfabric.engine.executions.explanation import (
    Explanation,
    ExplanationReason,
    Facts,
    ReasonCode,
)
from flowfabric.engine.executions.read_limit import LimitStatus, limit_reason
from flowfabric.engine.executions.read_waits import Compensating, OpenSuspension
from flowfabric.engine.executions.wait_reasons import (
    compensation_reason,
    suspended_reason,
    timer_reason,
)
from flowfabric.engine.executions.words import at, counted, listed, span, times
from flowfabric.errors.outcomes import RESULT_ENCODE
from flowfabric.expired_text import EXPIRED_REMEDY, expired_text
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.served import elsewhere_text
from flowfabric.states import (
    AttemptState,
    BlockingReason,
    EligibilityState,
    LaneState,
    LifecyclePhase,
    PublicState,
    SiblingCancelReason,
)


def explained(
    execution_id: ExecutionId,
    facts: Facts,
    *,
    suspension: OpenSuspension | None = None,
    compensating: Compensating | None = None,
    limit: LimitStatus | None = None,
) -> Explanation:
    """The explanation of one execution, with its open suspension, compensations and limit."""
    return Explanation(
        execution_id=execution_id,
        public_state=PublicState(facts.public_state),
        since=instant(facts.terminal_at_ms or facts.last_mutation_at_ms),
        lane_id=facts.lane_id,
        execution_kind=facts.execution_kind,
        required_capabilities=facts.required_capabilities,
        live_workers=facts.workers,
        able_workers=facts.able_workers,
        reasons=list(_reasons(execution_id, facts, suspension, compensating, limit)),
    )


def _reasons(
    execution_id: ExecutionId,
    facts: Facts,
    suspension: OpenSuspension | None,
    compensating: Compensating | None,
    limit: LimitStatus | None,
) -> Iterator[ExplanationReason]:
    match LifecyclePhase(facts.lifecycle_phase):
        case LifecyclePhase.TERMINAL:
            yield _ended(execution_id, facts)
            if compensating is not None:
                yield compensation_reason(compensating)
            return
        case LifecyclePhase.ACTIVE:
            yield _held(facts)
        case LifecyclePhase.SUSPENDED:
            yield suspended_reason(execution_id, facts, suspension)
        case LifecyclePhase.RUNNABLE:
            if not _is_late(facts):
                yield from _waiting(execution_id, facts, limit)
    if _is_late(facts):
        yield ExplanationReason(
            why=ReasonCode.DEADLINE,
            message=f"its deadline passed at {at(facts.deadline_at_ms)}, so no attempt starts, "
            "and no sweep has ended it yet",
            remedy="a running worker sweeps every two seconds: is one running? ff workers",
        )
    elif facts.deadline_at_ms is not None:
        yield ExplanationReason(
            why=ReasonCode.DEADLINE,
            message=f"it expires at {at(facts.deadline_at_ms)} unless it has ended by then",
            remedy="nothing extends a deadline; a replay after it grants the same time again",
            clears_at=instant(facts.deadline_at_ms),
        )


def _is_late(facts: Facts) -> bool:
    return facts.deadline_at_ms is not None and facts.deadline_at_ms <= facts.seen_at_ms


def _waiting(
    execution_id: ExecutionId, facts: Facts, limit: LimitStatus | None
) -> Iterator[ExplanationReason]:
    """What keeps a runnable execution from running, the first obstacle first."""
    blocked = _blocked(execution_id, facts) if limit is None else limit_reason(limit)
    if blocked is not None:
        yield blocked
    lane_starts = _lane(facts).starts
    if not lane_starts:
        yield _lane_not_active(facts)
    if facts.reserved_for is not None:
        yield ExplanationReason(
            why=ReasonCode.RESERVED,
            message=f"reserved for worker {facts.reserved_for!r} by a claim grant "
            f"until {at(facts.reserved_until_ms)}",
            remedy="that worker claims it, or the grant expires",
            clears_at=instant(facts.reserved_until_ms),
        )
    unserved = _unserved(facts)
    if unserved is not None:
        yield unserved
    elif blocked is None and facts.reserved_for is None and lane_starts:
        yield _queued(facts)


def _blocked(execution_id: ExecutionId, facts: Facts) -> ExplanationReason | None:
    detail = f": {facts.blocking_detail}" if facts.blocking_detail else ""
    match EligibilityState(facts.eligibility_state):
        case EligibilityState.ELIGIBLE_NOW | EligibilityState.NOT_APPLICABLE:
            return None
        case EligibilityState.NOT_ELIGIBLE_UNTIL_TIME:
            return _not_due(execution_id, facts)
        case EligibilityState.BLOCKED_BY_DEPENDENCIES:
            return _waits_for_upstreams(facts)
        case EligibilityState.BLOCKED_BY_OPERATOR:
            return ExplanationReason(
                why=ReasonCode.BLOCKED,
                message=f"held back by {facts.actor or 'an operator'}{detail}",
                remedy=f"unblock it: ff executions unblock '{execution_id}'",
            )
        case EligibilityState.BLOCKED_BY_ROUTE:
            return ExplanationReason(
                why=ReasonCode.BLOCKED,
                message=f"held back until a capable worker is registered{detail}",
                remedy=f"start a worker on lane {facts.lane_id!r} that offers "
                f"{listed(facts.required_capabilities)}",
            )
        case EligibilityState.BLOCKED_BY_LANE_STATE:
            return ExplanationReason(
                why=ReasonCode.BLOCKED,
                message=f"held back by policy{detail}",
                remedy="the policy must be lifted where it was set",
            )
        case EligibilityState.BLOCKED_BY_BUDGET | EligibilityState.BLOCKED_BY_QUOTA as limit:
            return ExplanationReason(
                why=ReasonCode.BLOCKED,
                message=f"{limit.value.removeprefix('blocked_by_')} used up{detail}",
                remedy="it goes on when there is room again",
            )


def _waits_for_upstreams(facts: Facts) -> ExplanationReason:
    if facts.deps_total == 0:
        return ExplanationReason(
            why=ReasonCode.WAITS_FOR_UPSTREAMS,
            message="held for dependencies, and none is applied yet",
            remedy="apply its edges, or promote it",
        )
    still = ", ".join(facts.deps_open)
    more = facts.deps_total - facts.deps_done - facts.deps_lost - len(facts.deps_open)
    others = f" and {more} more" if more > 0 else ""
    lost = f", {facts.deps_lost} ended otherwise" if facts.deps_lost else ""
    return ExplanationReason(
        why=ReasonCode.WAITS_FOR_UPSTREAMS,
        message=f"waits for {facts.deps_required} of {facts.deps_total} upstreams: "
        f"{facts.deps_done} done{lost}; open: {still}{others}",
        remedy="it becomes claimable when enough of them have succeeded; explain one of them",
    )


def _not_due(execution_id: ExecutionId, facts: Facts) -> ExplanationReason:
    due = facts.delay_until_ms or facts.seen_at_ms
    why = {
        BlockingReason.WAITING_FOR_RETRY_BACKOFF: f"attempt {facts.attempt_index} failed "
        f"({facts.failure_category}: {_expired(facts)}); retry {facts.retry_count} waits",
        BlockingReason.WAITING_FOR_RESUME_DELAY: "it was resumed with a delay and waits",
    }.get(BlockingReason(facts.blocking_reason), "it is delayed")
    if facts.infra_release_count and facts.blocking_reason == BlockingReason.WAITING_FOR_DELAY:
        why = _released(facts)
    if facts.blocking_detail and facts.blocking_reason == BlockingReason.WAITING_FOR_DELAY:
        if due > facts.seen_at_ms:
            return timer_reason(execution_id, facts, due)
        why = facts.blocking_detail
    if due <= facts.seen_at_ms:
        return ExplanationReason(
            why=ReasonCode.DUE,
            message=f"{why}; it was due at {at(due)} and no sweep has promoted it yet",
            remedy="a running worker sweeps every second: is one running? ff workers",
        )
    return ExplanationReason(
        why=ReasonCode.NOT_DUE,
        message=f"{why} until {at(due)}",
        remedy=f"it becomes claimable by itself in {span(due - facts.seen_at_ms)}",
        clears_at=instant(due),
    )


def _released(facts: Facts) -> str:
    often = times(facts.infra_release_count)
    return (
        f"released {often} because of database trouble ({facts.failure_reason}); "
        f"its next start waits"
    )


def _lane(facts: Facts) -> LaneState:
    return LaneState(facts.lane_state or LaneState.ACTIVE)


def _lane_not_active(facts: Facts) -> ExplanationReason:
    by = f" by {facts.state_changed_by}" if facts.state_changed_by else ""
    since = f" since {at(facts.state_changed_at_ms)}" if facts.state_changed_at_ms else ""
    because = f": {facts.state_reason}" if facts.state_reason else ""
    return ExplanationReason(
        why=ReasonCode.LANE_NOT_ACTIVE,
        message=f"lane {facts.lane_id!r} is {facts.lane_state}{by}{since}{because}",
        remedy=f"make it active again: ff lanes resume {quote(facts.lane_id)}",
    )


def _unserved(facts: Facts) -> ExplanationReason | None:
    """The worker that is missing; None if some worker can run the execution."""
    if facts.able_workers:
        return None
    here = f"on lane {facts.lane_id!r} in namespace {facts.namespace!r}"
    if facts.stuck_workers:
        return ExplanationReason(
            why=ReasonCode.THREADS_STUCK,
            message=f"{_workers(facts.stuck_workers)} {here} could run it and does not claim "
            f"{facts.execution_kind!r}: threads of earlier attempts have not returned",
            remedy="restart the worker; find out why the task hangs, ff workers shows how many "
            'threads do; with executor="process" it can be stopped',
        )
    clause = elsewhere_text(facts.lane_id, facts.namespace, facts.served_elsewhere)
    elsewhere = f"; {clause}" if clause else ""
    move = ", or submit where the kind is served" if clause else ""
    if facts.lane_workers == 0:
        on_others = f" ({facts.workers} on other lanes)" if facts.workers else ""
        others = {each.namespace for each in facts.served_elsewhere} - {facts.namespace}
        named = f" whose app is App(namespace={facts.namespace!r})"
        start = f"start one{named if others or facts.namespace != 'default' else ''}"
        return ExplanationReason(
            why=ReasonCode.NO_WORKER,
            message=f"no live worker {here}{on_others}{elsewhere}",
            remedy=f"{start}: ff worker MODULE:APP --lane {quote(facts.lane_id)}{move}",
        )
    if facts.kind_workers == 0:
        return ExplanationReason(
            why=ReasonCode.NO_WORKER_FOR_KIND,
            message=f"{_workers(facts.lane_workers)} {here}, "
            f"none with a task of kind {facts.execution_kind!r}{elsewhere}",
            remedy=f"deploy the code that registers this kind{move}",
        )
    missing = facts.missing_capabilities
    offered = f"none offers {listed(missing)}" if missing else "none offers all of that at once"
    return ExplanationReason(
        why=ReasonCode.NO_CAPABLE_WORKER,
        message=f"it requires {listed(facts.required_capabilities)}: "
        f"{_workers(facts.kind_workers)} {here}, {offered}",
        remedy=f"start a worker there that offers {listed(facts.required_capabilities)}",
    )


def _queued(facts: Facts) -> ExplanationReason:
    """The execution is claimable, and a live worker can run it."""
    able = f"{_workers(facts.able_workers)} with {facts.busy_slots} of {facts.slots} slots in use"
    if facts.ahead:
        more = "1000 or more" if facts.ahead >= 1000 else str(facts.ahead)
        return ExplanationReason(
            why=ReasonCode.BEHIND_OTHERS,
            message=f"{more} like it are claimed before it (priority {facts.priority}); {able}",
            remedy="more workers or slots, or a higher priority: ff executions priority",
        )
    if facts.busy_slots >= facts.slots:
        return ExplanationReason(
            why=ReasonCode.WORKERS_BUSY,
            message=f"next in its queue; {able}",
            remedy="it starts when a slot is free; more workers or slots make that sooner",
        )
    waited = facts.seen_at_ms - facts.last_mutation_at_ms
    return ExplanationReason(
        why=ReasonCode.ABOUT_TO_START,
        message=f"next in its queue for {span(waited)}; {able}",
        remedy="nothing stands in its way; if it stays so, look at the workers' logs",
    )


def _held(facts: Facts) -> ExplanationReason:
    began = f", attempt {facts.attempt_index + 1} since {at(facts.attempt_started_at_ms)}"
    progress = "" if facts.progress_pct is None else f", {facts.progress_pct} % done"
    note = f" ({facts.progress_message})" if facts.progress_message else ""
    holder = f"worker {facts.worker_instance_id!r}"
    if (facts.lease_expires_at_ms or 0) <= facts.seen_at_ms:
        return ExplanationReason(
            why=ReasonCode.LEASE_EXPIRED,
            message=f"the lease of {holder} expired at {at(facts.lease_expires_at_ms)}{began}",
            remedy="the next sweep makes it claimable again: is a worker running? ff workers",
        )
    if not facts.holder_alive:
        return ExplanationReason(
            why=ReasonCode.HOLDER_SILENT,
            message=f"held by {holder}, which is not registered as alive{began}{progress}{note}",
            remedy="it is claimable again when the lease expires, or after ff executions revoke",
            clears_at=instant(facts.lease_expires_at_ms),
        )
    limit = ""
    if facts.attempt_timeout_at_ms is not None:
        limit = f"; the attempt is ended at {at(facts.attempt_timeout_at_ms)}"
    return ExplanationReason(
        why=ReasonCode.HELD,
        message=f"runs on {holder} until {at(facts.lease_expires_at_ms)} or its next renewal"
        f"{began}{progress}{note}{limit}",
        remedy="it ends by itself; ff executions revoke requeues it, cancel ends it",
    )


def _ended(execution_id: ExecutionId, facts: Facts) -> ExplanationReason:
    state = PublicState(facts.public_state)
    when = at(facts.terminal_at_ms)
    tried = f"after {counted(facts.total_attempt_count, 'attempt')}"
    message = {
        PublicState.COMPLETED: f"completed at {when} {tried}",
        PublicState.FAILED: f"failed at {when} {tried} "
        f"({facts.failure_category}): {facts.failure_reason}",
        PublicState.CANCELLED: f"cancelled at {when} by {facts.actor or facts.cancelled_by}: "
        f"{_cancel_reason(facts)}",
        PublicState.EXPIRED: f"expired at {when} {tried}: {_expired(facts)}",
        PublicState.SKIPPED: f"skipped at {when}: its upstreams made its join impossible",
    }[state]
    left = facts.max_replay_count - facts.replay_count
    replay = (
        f"run it again ({counted(left, 'replay')} left): ff executions replay '{execution_id}'"
        if left > 0
        else f"nothing: it was replayed {times(facts.replay_count)}, as often as its policy allows"
    )
    if left > 0 and not _lane(facts).accepts:
        resume = f"lane {facts.lane_id!r} is {facts.lane_state}: ff lanes resume"
        replay = f"{resume} {quote(facts.lane_id)}; then {replay}"
    if left > 0:
        replay = _before_replay(facts) + replay
    never = "" if facts.attempt_state == AttemptState.ATTEMPT_TERMINAL else "; it never ran"
    return ExplanationReason(why=ReasonCode(state.value), message=message + never, remedy=replay)


def _expired(facts: Facts) -> str:
    return expired_text(
        facts.failure_reason, timeout_ms=facts.timeout_ms, deadline_at_ms=facts.deadline_at_ms
    )


def _before_replay(facts: Facts) -> str:
    """What comes before a replay, which would end in the same way otherwise."""
    if facts.public_state == PublicState.EXPIRED and facts.failure_reason in EXPIRED_REMEDY:
        return f"{EXPIRED_REMEDY[facts.failure_reason]} for later calls; "
    return "mend the task; then " if facts.failure_category == RESULT_ENCODE else ""


def _cancel_reason(facts: Facts) -> str:
    if facts.unneeded_by is None:
        return str(facts.cancellation_reason)
    because = {
        SiblingCancelReason.SIBLING_QUORUM_SATISFIED: "the join of {!r} was satisfied without it",
        SiblingCancelReason.SIBLING_QUORUM_IMPOSSIBLE: "the join of {!r} cannot be satisfied any "
        "more",
        SiblingCancelReason.PARENT_ENDED: "its parent {!r} ended without success",
    }[SiblingCancelReason(facts.cancellation_reason or "")].format(facts.unneeded_by)
    return f"it was not needed any more: {because} ({facts.cancellation_reason})"


def _workers(count: int) -> str:
    return counted(count, "live worker")
