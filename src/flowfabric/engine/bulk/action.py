"""What can be done to many executions, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.operator_event import operator_events
from flowfabric.engine.lifecycle.tag import tag
from flowfabric.engine.operators.block_execution_for_admission import (
    block_executions_for_admission,
)
from flowfabric.engine.operators.cancel_execution import cancel_executions
from flowfabric.engine.operators.change_priority import change_priorities
from flowfabric.engine.operators.replay_execution import replay_executions
from flowfabric.engine.operators.resume_execution import resume_executions
from flowfabric.engine.operators.revoke_lease import LeaseNotRevoked, revoke_leases
from flowfabric.engine.operators.unblock_execution import unblock_executions
from flowfabric.errors import EngineError, NotFound, ValidationError, invalid_input
from flowfabric.ids import ExecutionId, check_tag_key, check_tag_value, check_text
from flowfabric.states import BlockingReason, BulkActionKind, OperatorEventType, PublicState
from flowfabric.tags import too_many_tags

_ENDED: Final = frozenset(
    {
        PublicState.COMPLETED,
        PublicState.FAILED,
        PublicState.CANCELLED,
        PublicState.EXPIRED,
        PublicState.SKIPPED,
    }
)
_OPEN: Final = frozenset(PublicState) - _ENDED
_NOT_STARTED: Final = _OPEN - {PublicState.ACTIVE, PublicState.SUSPENDED}
ELIGIBLE: Final[Mapping[BulkActionKind, frozenset[PublicState]]] = {
    BulkActionKind.CANCEL: _OPEN,
    BulkActionKind.REPLAY: _ENDED,
    BulkActionKind.PRIORITY: _NOT_STARTED,
    BulkActionKind.BLOCK: _NOT_STARTED,
    BulkActionKind.UNBLOCK: frozenset({PublicState.WAITING, PublicState.RATE_LIMITED}),
    BulkActionKind.TAG: frozenset(PublicState),
    BulkActionKind.REVOKE: frozenset({PublicState.ACTIVE}),
    BulkActionKind.RESUME: frozenset({PublicState.SUSPENDED}),
}
"""The states in which an execution may be changed; in any other it is refused."""


class BulkArguments(msgspec.Struct, frozen=True, kw_only=True):
    """What the action needs beside the executions."""

    priority: int | None = None
    """Of `priority`."""
    tag_key: str | None = None
    """Of `tag`, with its value."""
    tag_value: str | None = None


def check_action(action: str, arguments: BulkArguments, reason: str) -> BulkActionKind:
    """The action, if it can be done with these; raises `ValidationError(invalid_input)`."""
    if action not in set(BulkActionKind):
        raise invalid_input("action", action, f"must be one of {', '.join(BulkActionKind)}")
    check_text(reason, field="reason", at_most=4000)
    kind = BulkActionKind(action)
    if kind is BulkActionKind.PRIORITY and arguments.priority is None:
        raise invalid_input("priority", None, "must be given")
    if kind is BulkActionKind.TAG:
        if arguments.tag_key is None or arguments.tag_value is None:
            raise invalid_input("tag_key", arguments.tag_key, "must be given with tag_value")
        check_tag_key(arguments.tag_key)
        check_tag_value(arguments.tag_value, key=arguments.tag_key)
    return kind


async def do_action(
    conn: Connection,
    kind: BulkActionKind,
    executions: Sequence[ExecutionId],
    arguments: BulkArguments,
    *,
    actor: str,
    reason: str,
) -> list[str]:
    """What became of each: `changed`, `repeated`, or the code of the error that refused it."""
    by: dict[str, Any] = {"actor": actor, "reason": reason}
    answers: Sequence[object]
    match kind:
        case BulkActionKind.CANCEL:
            answers = await cancel_executions(conn, executions, **by)
        case BulkActionKind.REPLAY:
            answers = await replay_executions(conn, executions, **by)
        case BulkActionKind.PRIORITY:
            answers = await change_priorities(conn, executions, arguments.priority or 0, **by)
        case BulkActionKind.BLOCK:
            answers = await block_executions_for_admission(
                conn, executions, BlockingReason.PAUSED_BY_OPERATOR, detail=reason, actor=actor
            )
        case BulkActionKind.UNBLOCK:
            answers = await unblock_executions(conn, executions, actor=actor)
        case BulkActionKind.TAG:
            answers = await _tag(conn, executions, arguments, **by)
        case BulkActionKind.REVOKE:
            answers = await revoke_leases(conn, executions, **by)
        case BulkActionKind.RESUME:
            answers = await resume_executions(conn, executions, **by)
    return [_word(answer) for answer in answers]


async def _tag(
    conn: Connection,
    executions: Sequence[ExecutionId],
    arguments: BulkArguments,
    *,
    actor: str,
    reason: str,
) -> list[EngineError | bool]:
    """Whether the tag of each was changed, or why it cannot be."""
    key, value = arguments.tag_key or "", arguments.tag_value or ""
    tagged = await tag(conn, executions, key=key, value=value)
    changed = {
        each: {"key": key, "value": value, "old_value": change.old_value}
        for each, change in tagged.items()
        if change.tagged and change.old_value != value
    }
    kind = OperatorEventType.EXECUTION_TAGGED
    await operator_events(conn, kind, changed, actor=actor, reason=reason)
    answers: list[EngineError | bool] = []
    for each in executions:
        if each not in tagged:
            answers.append(NotFound("execution", each))
        elif not tagged[each].tagged:
            answers.append(too_many_tags(key))
        else:
            answers.append(each in changed)
    return answers


def _word(answer: object) -> str:
    if isinstance(answer, EngineError | ValidationError):
        return answer.code
    if isinstance(answer, LeaseNotRevoked):
        return answer.reason.value
    return "repeated" if answer is False or getattr(answer, "repeated", False) else "changed"
