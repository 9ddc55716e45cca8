"""Parts of the page of an execution: remedies, signals, budgets, two attempts side by side."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from flowfabric.dashboard.pages.execution_acts import back, why_not
from flowfabric.dashboard.view.durations import absolute, length
from flowfabric.dashboard.view.json_text import Payload, payload
from flowfabric.dashboard.view.sentences import state_word
from flowfabric.dashboard.visit import Visit
from flowfabric.engine.budgets.status import BudgetStatus
from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
from flowfabric.engine.executions.explanation import Explanation, ReasonCode
from flowfabric.engine.executions.list_attempts import Attempt
from flowfabric.engine.executions.read_policy import AppliedPolicy
from flowfabric.engine.suspensions.list_signals import SentSignal
from flowfabric.errors import EngineError
from flowfabric.states import Scope

_SIGNALS: Final = 50
_MOST_LINES: Final = 400
_COMMAND: Final = 4096
_REMEDIES: Final = {
    ReasonCode.BLOCKED: ("unblock", "Unblock", Scope.OPERATE),
    ReasonCode.HOLDER_SILENT: ("revoke", "Revoke lease", Scope.OPERATE),
    ReasonCode.DIVERGED: ("resume", "Resume", Scope.OPERATE),
    ReasonCode.FAILED: ("replay", "Replay", Scope.OPERATE),
    ReasonCode.EXPIRED: ("replay", "Replay", Scope.OPERATE),
    ReasonCode.BEHIND_OTHERS: ("priority", "Change priority", Scope.OPERATE),
}
"""The act that does what the remedy of a reason says."""


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """A button beside a reason."""

    label: str
    href: str


def remedies(
    visit: Visit, found: ExecutionSnapshot, explanation: Explanation | None, waitpoints: list[Any]
) -> list[Remedy | None]:
    """For each reason the button that does something about it, if the person may press it."""
    given = [] if explanation is None else explanation.reasons
    return [_remedy(visit, found, reason.why, waitpoints) for reason in given]


def _remedy(
    visit: Visit, found: ExecutionSnapshot, why: ReasonCode, waitpoints: list[Any]
) -> Remedy | None:
    path = back(found.execution_id)
    if why is ReasonCode.LANE_NOT_ACTIVE and visit.may(Scope.OPERATE_ALL):
        return Remedy(label="Resume lane", href=visit.url(f"/lanes/{found.lane_id}/resume"))
    if why is ReasonCode.SUSPENDED:
        if waitpoints and visit.may(Scope.OPERATE):
            return Remedy(label="Answer", href=visit.url(answer_path(waitpoints[0])))
        if visit.may(Scope.WRITE) and found.current_suspension is not None:
            return Remedy(label="Send signal", href=visit.url(f"{path}/signal"))
    offered = _REMEDIES.get(why)
    if offered is None or not visit.may(offered[2]) or why_not(offered[0], found):
        return None
    return Remedy(label=offered[1], href=visit.url(f"{path}/{offered[0]}"))


def answer_path(waitpoint: Any) -> str:
    """The path of the dialog that answers the waitpoint."""
    x = waitpoint.execution_id
    return f"/approvals/{x.partition_key}.{x.uuid}/{waitpoint.waitpoint_id}/answer"


# Signals.


class ShownSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal, what it did, and its payload as it is shown."""

    signal: SentSignal
    value: Payload | None
    hue: str


async def signals_of(visit: Visit, found: ExecutionSnapshot) -> list[ShownSignal]:
    """The newest signals that the execution was sent."""
    redact, hidden = visit.site.settings.redact, visit.principal.hide_payloads
    return [
        ShownSignal(
            signal=each,
            value=payload(each.payload, each.encoding, redact, hidden=hidden),
            hue="green" if "satisfied" in each.effect or each.consumed else "grey",
        )
        for each in await visit.engine.list_signals(found.execution_id, limit=_SIGNALS)
    ]


# Budgets.


class OwnBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A budget of the execution, and what the execution has spent of it itself."""

    budget_id: UUID
    status: BudgetStatus | None
    """None for a budget that nobody has created."""
    spent: dict[str, int]


async def policy_of(visit: Visit, found: ExecutionSnapshot) -> AppliedPolicy | None:
    """The policy; None if it cannot be read."""
    try:
        return await visit.engine.read_policy(found.execution_id)
    except EngineError:
        return None


async def budgets_of(
    visit: Visit, found: ExecutionSnapshot, policy: AppliedPolicy | None
) -> list[OwnBudget]:
    """The budgets that it is attached to or has spent of."""
    spends = await visit.engine.list_own_spend(found.execution_id)
    wanted = [*(policy.budget_ids if policy else ()), *(each.budget_id for each in spends)]
    shown: list[OwnBudget] = []
    for budget_id in dict.fromkeys(wanted):
        try:
            status = await visit.engine.get_budget_status(budget_id)
        except EngineError:
            status = None
        spent = {each.dimension: each.amount for each in spends if each.budget_id == budget_id}
        shown.append(OwnBudget(budget_id=budget_id, status=status, spent=spent))
    return shown


# Two attempts side by side.


class ComparedFact(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the comparison."""

    name: str
    left: str
    right: str

    @property
    def differs(self) -> bool:
        return self.left != self.right


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two attempts of one execution."""

    left: Attempt
    right: Attempt
    facts: list[ComparedFact]
    traces: tuple[list[tuple[str, bool]], list[tuple[str, bool]]]
    """The lines of both tracebacks, and whether the other one has not the line."""


def compared(attempts: Sequence[Attempt], one: str, other: str, *, hidden: bool) -> Any:
    """The comparison that the address asks for; None if it asks for none."""
    by_index = {str(each.attempt_index): each for each in attempts}
    if other not in by_index:
        return None
    right = by_index[other]
    left = by_index.get(one, attempts[-1])
    if left is right:
        return None
    if left.attempt_index > right.attempt_index:
        left, right = right, left
    facts = [
        ComparedFact(name=name, left=_fact(left, name), right=_fact(right, name))
        for name in ("outcome", "type", "worker", "started", "ran", "category", "reason")
        if not (hidden and name == "reason")
    ]
    return Comparison(left=left, right=right, facts=facts, traces=_traces(left, right, hidden))


def _fact(attempt: Attempt, name: str) -> str:
    match name:
        case "outcome":
            return state_word(attempt.outcome or "running")
        case "type":
            return state_word(attempt.attempt_type)
        case "worker":
            return attempt.worker_instance_id
        case "started":
            return absolute(attempt.started_at)
        case "ran":
            return (
                "still runs"
                if attempt.ended_at is None
                else length(attempt.ended_at - attempt.started_at)
            )
        case "category":
            return attempt.failure_category or "\N{EN DASH}"
        case _:
            return attempt.failure_reason or "\N{EN DASH}"


def _traces(
    left: Attempt, right: Attempt, hidden: bool
) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    if hidden:
        return [], []
    one = (left.failure_detail or "").splitlines()[-_MOST_LINES:]
    two = (right.failure_detail or "").splitlines()[-_MOST_LINES:]
    first = [(line, False) for line in one]
    second = [(line, False) for line in two]
    matcher = difflib.SequenceMatcher(a=one, b=two, autojunk=False)
    for tag, a0, a1, b0, b1 in matcher.get_opcodes():
        if tag != "equal":
            first[a0:a1] = [(line, True) for line in one[a0:a1]]
            second[b0:b1] = [(line, True) for line in two[b0:b1]]
    return first, second


def submit_command(found: ExecutionSnapshot, shown: Payload | None) -> str:
    """The command that submits the same again; empty if the input is not fit for one."""
    body = found.body
    if (
        body is None
        or shown is None
        or shown.hidden
        or shown.redacted
        or len(body.payload) > _COMMAND
    ):
        return ""
    if shown.encoding != "json" or not shown.lines:
        return ""
    words = ["ff", "submit", found.execution_kind, body.payload.decode()]
    for option, value, default in (
        ("--lane", found.lane_id, "default"),
        ("--namespace", found.namespace, "default"),
        ("--priority", str(found.priority), "0"),
    ):
        if value != default:
            words += [option, value]
    return shlex.join(words)
