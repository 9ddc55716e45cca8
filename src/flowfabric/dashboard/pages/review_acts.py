"""Executions that were stopped for review: all of a kind go on, or one of them runs again."""

from __future__ import annotations

from typing import Final

from flowfabric.dashboard.problems import not_found
from flowfabric.dashboard.table import ActDone, Dialog, act
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
from flowfabric.engine.executions.search import Search
from flowfabric.engine.operators.resume_execution import Resumed
from flowfabric.engine.suspensions.list_reviews import ReviewGroup
from flowfabric.ids import ExecutionId
from flowfabric.states import BlockingReason, PublicState, Scope

_AT_ONCE: Final = 500


def is_stopped_alone(found: ExecutionSnapshot) -> bool:
    """Does it wait for an operator, with no flow around it that an end of it would change?"""
    return (
        found.public_state is PublicState.SUSPENDED
        and found.blocking_reason is BlockingReason.PAUSED_BY_OPERATOR
        and found.flow_id is None
    )


async def may_replay(visit: Visit, execution_id: ExecutionId) -> bool:
    """Can the execution that was stopped be made to run again?"""
    if not visit.may(Scope.OPERATE):
        return False
    found = await visit.engine.describe_execution(execution_id)
    return found is not None and is_stopped_alone(found)


async def _group(visit: Visit) -> ReviewGroup:
    """The executions whose handlers no longer fit, of the kind and the namespace asked for."""
    wanted = visit.query("kind"), visit.query("of")
    for each in await visit.engine.list_reviews(namespace=visit.namespace):
        if each.divergent and (each.execution_kind, each.namespace) == wanted:
            return each
    raise not_found("Nothing of this kind is stopped for review any more.")


async def ask_resume(visit: Visit) -> Dialog:
    group = await _group(visit)
    noun = "execution" if group.waiting == 1 else "executions"
    return Dialog(
        question=f"Resume {group.waiting:,} {noun} of {group.execution_kind}?",
        effect="Each goes on with what it has recorded. One whose code still does not fit is"
        " stopped again, and nothing of it is lost.",
        button="Resume executions",
        back="/approvals",
        warning="Deploy code that fits first." if group.waiting > 1 else "",
    )


async def do_resume(visit: Visit, form: SentForm) -> ActDone:
    group, reason = await _group(visit), form.reason()
    search = Search(
        namespace=group.namespace, execution_kinds=(group.execution_kind,), divergent=True
    )
    cursor, resumed, refused = None, 0, 0
    while True:
        page = await visit.engine.search_executions(search, cursor=cursor, limit=_AT_ONCE)
        ids = [each.execution_id for each in page.executions]
        answers = await visit.engine.resume_executions(ids, actor=visit.actor, reason=reason)
        resumed += sum(isinstance(each, Resumed) for each in answers)
        refused += sum(not isinstance(each, Resumed) for each in answers)
        cursor = page.next_cursor
        if cursor is None:
            break
    others = f" {refused:,} had gone on before." if refused else ""
    return ActDone(message=f"{resumed:,} go on.{others}")


ROUTES: Final = (act("/approvals/resume", ask_resume, do_resume, Scope.OPERATE),)
