"""Why an execution sleeps or is suspended: what it waits for, until when, and what wakes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from shlex import quote
from typing import Final

from flowfabric.conditions import (
    AllConditions,
    AnyCondition,
    Condition,
    CountOf,
    OperatorOnly,
    Single,
    TimeoutOnly,
    UnknownCondition,
    can_be_satisfied,
    counted_signals,
)
from flowfabric.engine.executions.explanation import ExplanationReason, Facts, ReasonCode
from flowfabric.engine.executions.read_waits import (
    ArrivedSignal,
    AwaitedWaitpoint,
    Compensating,
    OpenSuspension,
)
from flowfabric.engine.executions.words import at, counted, listed, span
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.states import DIVERGENCE, SuspensionReason, TimeoutBehavior

_SHOWN: Final = 3
"""How many commands, and names of signals in an inbox, are named."""
_SLEEPS: Final = "sleeps in "
_AFTER_TIMEOUT: Final = {
    TimeoutBehavior.FAIL: "then it fails",
    TimeoutBehavior.CANCEL: "then it is cancelled",
    TimeoutBehavior.EXPIRE: "then it expires",
    TimeoutBehavior.AUTO_RESUME: "then it goes on without",
    TimeoutBehavior.ESCALATE: "then it waits for an operator",
}
_APPROVED: Final = ("approved", "approve")


def timer_reason(execution_id: ExecutionId, facts: Facts, due: int) -> ExplanationReason:
    """A handler sleeps, or waits for the next try of a step; `blocking_detail` says which."""
    detail = facts.blocking_detail or ""
    several = "; " in detail
    when = f"{at(due)} (in {span(due - facts.seen_at_ms)})"
    if _SLEEPS not in detail:
        return ExplanationReason(
            why=ReasonCode.NOT_DUE,
            message=f"{detail}{'; the first' if several else ''} at {when}",
            remedy="it goes on by itself",
            clears_at=instant(due),
        )
    skip = f"ff executions wake '{execution_id}' --skip"
    return ExplanationReason(
        why=ReasonCode.SLEEPS,
        message=f"{detail}{'; the first' if several else ''} until {when}",
        remedy=f"it goes on by itself; to end the sleep now: {skip}",
        clears_at=instant(due),
    )


def suspended_reason(
    execution_id: ExecutionId, facts: Facts, open_: OpenSuspension | None
) -> ExplanationReason:
    """What a suspended execution waits for, and the command that lets it go on."""
    detail = facts.blocking_detail or ""
    if detail.startswith(DIVERGENCE):
        return _diverged(execution_id, facts, detail.removeprefix(DIVERGENCE))
    if open_ is None:
        awaited = facts.blocking_reason.removeprefix("waiting_for_").replace("_", " ")
        return ExplanationReason(
            why=ReasonCode.SUSPENDED,
            message=f"suspended, waiting for {awaited}" + (f": {detail}" if detail else ""),
            remedy=f"deliver what it waits for ({awaited}), or cancel it",
        )
    escalated = open_.reason is SuspensionReason.WAITING_FOR_OPERATOR_REVIEW and (
        _has_expired(open_) or not _is_operators(open_)
    )
    before = "its timeout has passed, and an operator has to decide: it " if escalated else ""
    return ExplanationReason(
        why=ReasonCode.SUSPENDED,
        message=before
        + _waits_for(open_, detail)
        + f" since {at(open_.suspended_at_ms)}"
        + _until(open_)
        + _arrived(open_)
        + _in_vain(open_)
        + _others(open_),
        remedy=_remedy(execution_id, open_),
        clears_at=instant(open_.timeout_at_ms),
    )


def compensation_reason(compensating: Compensating) -> ExplanationReason:
    """The calls that undo what an ended execution did."""
    if compensating.public_state is None:
        return ExplanationReason(
            why=ReasonCode.COMPENSATED,
            message="its compensations have not started",
            remedy="a running worker starts them every two seconds, unless the lane takes nothing "
            "new: ff lanes",
        )
    state = compensating.public_state
    return ExplanationReason(
        why=ReasonCode.COMPENSATED,
        message=f"its compensations are execution {compensating.execution_id}, {state.value}",
        remedy=f"ff explain '{compensating.execution_id}'",
    )


def _diverged(execution_id: ExecutionId, facts: Facts, said: str) -> ExplanationReason:
    every = f"ff executions resume --divergent --kind {quote(facts.execution_kind)}"
    return ExplanationReason(
        why=ReasonCode.DIVERGED,
        message=said.removeprefix(f"execution {execution_id}: "),
        remedy="run workers with the code that made the recorded calls, or guard the change with "
        f"ctx.patched; then: ff executions resume '{execution_id}' (all of them: {every}); or "
        f"cancel it and begin anew: ff executions replay '{execution_id}' --from start",
    )


def _is_operators(open_: OpenSuspension) -> bool:
    """Does the suspension wait for an operator and nothing else?"""
    return isinstance(open_.condition, OperatorOnly) and not (open_.signals or open_.joins)


def _has_expired(open_: OpenSuspension) -> bool:
    """Does a handler wait for signals on waitpoints that have expired, and for nothing else?

    Only a wait that an operator has to decide goes on so; `DIVERGENCE` is looked at before.
    """
    return open_.is_handler and _is_operators(open_) and not open_.waitpoints


def _waits_for(open_: OpenSuspension, detail: str) -> str:
    condition = condition_text(open_.condition)
    if open_.is_handler and detail:
        return f"{detail} ({condition})" if condition else detail
    parts = [f"signal {name!r}" for name in open_.signals]
    parts += [counted(open_.joins, "join of children")] if open_.joins else []
    parts += [condition] if condition else []
    if not parts:
        only = "an operator" if isinstance(open_.condition, OperatorOnly) else "its time to come"
        parts = [f"{only} ({open_.reason.value.replace('_', ' ')})"]
    return f"waits for {' or '.join(parts)}" + (f" ({detail})" if detail else "")


def condition_text(condition: Condition) -> str:
    """Which signals on which waitpoints, in words; empty if no signal counts."""
    match condition:
        case Single():
            return f"{_signal(condition.name)} on {condition.waitpoint_key!r}"
        case CountOf():
            by = {
                "waitpoints": "on different waitpoints among",
                "signals": "on",
                "sources": "from different sources on",
            }[condition.distinct]
            named = "" if condition.name is None else f" {condition.name!r}"
            return f"{counted(condition.n, 'signal')}{named} {by} {listed(condition.waitpoints)}"
        case AllConditions():
            return " and ".join(_members(condition.members))
        case AnyCondition():
            return " or ".join(_members(condition.members))
        case OperatorOnly() | TimeoutOnly():
            return ""
        case UnknownCondition():
            return "a condition that this version does not know"


def _members(members: Sequence[Condition]) -> Iterator[str]:
    for member in members:
        text = condition_text(member)
        nested = isinstance(member, AllConditions | AnyCondition) and len(members) > 1
        yield f"({text})" if nested else text


def _signal(name: str | None) -> str:
    return "any signal" if name is None else f"signal {name!r}"


def _until(open_: OpenSuspension) -> str:
    if open_.timeout_at_ms is None:
        return ""
    when = open_.timeout_at_ms
    expiring = [each.waitpoint_key for each in open_.waitpoints if each.expires_at_ms == when]
    ends = "times out"
    if open_.is_handler and expiring:
        ends = f"{listed(expiring)} expire{'s' if len(expiring) == 1 else ''}"
    return f" ({ends} {at(when)}, {_AFTER_TIMEOUT[open_.behavior]})"


def _arrived(open_: OpenSuspension) -> str:
    """How many signals have come to the waitpoints, and how many of them count."""
    signals = _signals(open_)
    arrived = sum(len(each) for each in signals.values())
    if not arrived:
        return ""
    matching = len(counted_signals(open_.condition, signals))
    verb = "count" if matching > 1 else "counts"
    return f"; of {counted(arrived, 'signal')} that came {matching or 'none'} {verb}"


def _signals(open_: OpenSuspension) -> dict[str, list[ArrivedSignal]]:
    """What has come to its waitpoints, by their keys."""
    return {each.waitpoint_key: each.signals for each in (*open_.waitpoints, *open_.closed)}


def _is_in_vain(open_: OpenSuspension) -> bool:
    """Can nothing satisfy it any more, because waitpoints are closed?"""
    if open_.signals or open_.joins or not open_.closed:
        return False
    keys = {each.waitpoint_key for each in open_.waitpoints}
    return not can_be_satisfied(open_.condition, _signals(open_), keys)


def _in_vain(open_: OpenSuspension) -> str:
    """Which waitpoints are closed, if no signal can let the execution go on."""
    if _has_expired(open_):
        return "; no signal can let it go on any more: its waitpoints have expired"
    if not _is_in_vain(open_):
        return ""
    closed = " and ".join(f"{each.waitpoint_key!r} ({each.close_reason})" for each in open_.closed)
    return f"; no signal can let it go on any more: an operator closed {closed}"


def _others(open_: OpenSuspension) -> str:
    """The signals in the inbox that the execution does not wait for."""
    others = sorted(name for name in open_.inbox if name not in open_.signals)
    if not others:
        return ""
    number = sum(open_.inbox[name] for name in others)
    more = ", …" if len(others) > _SHOWN else ""
    return f"; its inbox has {number} of other names: {listed(others[:_SHOWN])}{more}"


def _remedy(execution_id: ExecutionId, open_: OpenSuspension) -> str:
    if _has_expired(open_):  # resumed, it would wait again
        return (
            f"end it: ff executions cancel '{execution_id}'; after that, to wait at a new "
            f"waitpoint: ff executions replay '{execution_id}' --from-step NAME, the waitpoint's"
        )
    if _is_in_vain(open_):
        return (
            f"let it go on: ff executions resume '{execution_id}'; or end it: ff executions cancel "
            f"'{execution_id}'"
        )
    commands = [f"ff signals send '{execution_id}' {quote(name)}" for name in open_.signals]
    keys = Counter(each.waitpoint_key for each in open_.waitpoints)
    commands += [
        _approve(execution_id, each, unique=keys[each.waitpoint_key] == 1)
        for each in open_.waitpoints
    ]
    remedies: list[str] = []
    if commands:
        remedies.append(f"send what it waits for: {' or '.join(commands[:_SHOWN])}")
    if open_.joins:
        remedies.append(
            "it goes on when its children have ended: ff executions steps "
            f"'{execution_id}' names them"
        )
    if not open_.is_handler or not remedies:
        remedies.append(f"let it go on: ff executions resume '{execution_id}'")
    return "; or ".join(remedies)


def _approve(execution_id: ExecutionId, waitpoint: AwaitedWaitpoint, *, unique: bool) -> str:
    named = quote(waitpoint.waitpoint_key) if unique else str(waitpoint.waitpoint_id)
    command = f"ff waitpoints approve '{execution_id}' {named}"
    if not waitpoint.names or any(name in _APPROVED for name in waitpoint.names):
        return command
    return f"{command} --signal {quote(waitpoint.names[0])}"
