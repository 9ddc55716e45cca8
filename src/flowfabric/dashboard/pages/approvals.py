"""Approvals: what waits for a person, and the answers that people give."""

from __future__ import annotations

from typing import Final

from flowfabric.dashboard.answers import PageAnswer
from flowfabric.dashboard.problems import PageProblem, not_found
from flowfabric.dashboard.table import ActDone, Dialog, DialogField, act, screen
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.engine.executions.search import Search
from flowfabric.engine.suspensions.list_open_waitpoints import OpenWaitpoint
from flowfabric.states import BlockingReason, PublicState, Scope

_SHOWN: Final = 200
_SIGNALS: Final = (BlockingReason.WAITING_FOR_SIGNAL, BlockingReason.WAITING_FOR_APPROVAL)


async def approvals(visit: Visit) -> PageAnswer:
    """Open waitpoints, soonest expiry first, and what waits for a signal or for review."""
    engine, namespace = visit.engine, visit.namespace
    page = await engine.list_open_waitpoints(namespace=namespace, limit=_SHOWN)
    far = visit.now.replace(year=visit.now.year + 100)
    waitpoints = sorted(
        (
            each
            for each in page.waitpoints
            if each.expires_at is None or each.expires_at > visit.now
        ),
        key=lambda each: each.expires_at or far,
    )
    suspended = Search(namespace=namespace, public_states=(PublicState.SUSPENDED,), sort="old")
    found = (await engine.search_executions(suspended, limit=_SHOWN)).executions
    with_waitpoint = {each.execution_id for each in waitpoints}
    review = Search(namespace=namespace, divergent=True)
    values = {
        "waitpoints": waitpoints,
        "more": page.next_cursor is not None,
        "signals": [
            each
            for each in found
            if each.blocking_reason in _SIGNALS and each.execution_id not in with_waitpoint
        ],
        "review": (await engine.search_executions(review, limit=50)).executions,
    }
    return PageAnswer(
        template="approvals.html", title="Approvals", section="approvals", values=values
    )


async def _waitpoint(visit: Visit) -> OpenWaitpoint:
    """The open waitpoint of the path; raises a `PageProblem` for one that was decided."""
    found = await visit.execution()
    wanted = visit.uuid("waitpoint_id")
    cursor = None
    for _ in range(10):
        page = await visit.engine.list_open_waitpoints(
            namespace=found.namespace, lane_id=found.lane_id, cursor=cursor, limit=1000
        )
        for each in page.waitpoints:
            if (each.execution_id, each.waitpoint_id) == (found.execution_id, wanted):
                return each
        cursor = page.next_cursor
        if cursor is None:
            break
    raise not_found("This was decided elsewhere, or has expired.")


async def ask_answer(visit: Visit) -> Dialog:
    waitpoint = await _waitpoint(visit)
    names = list(waitpoint.required_signal_names) or ["approved", "rejected"]
    return Dialog(
        question=f"Answer {waitpoint.waitpoint_key} of {waitpoint.execution_kind}?",
        effect="The signal is delivered in your name. If it is what the execution waits for, it"
        " goes on.",
        button="Deliver answer",
        back="/approvals",
        fields=[
            DialogField(
                name="signal",
                label="Answer",
                kind="select",
                value=names[0],
                choices=[(each, each) for each in names],
            )
        ],
    )


async def do_answer(visit: Visit, form: SentForm) -> ActDone:
    waitpoint = await _waitpoint(visit)
    signal = form.text("signal").strip()
    if not signal:
        raise PageProblem(422, "Choose an answer.", kind="invalid_input")
    form.reason()
    answer = await visit.engine.deliver_approval_signal(
        waitpoint.execution_id,
        waitpoint.waitpoint_id,
        signal,
        lane_id=waitpoint.lane_id,
        idempotency_suffix=visit.request_id,
        operator_identity=visit.actor,
    )
    went_on = ", and the execution goes on" if answer.resumed else ""
    return ActDone(message=f"{signal} was delivered{went_on}.")


ROUTES: Final = (
    screen("/approvals", approvals),
    act("/approvals/{execution_id}/{waitpoint_id}/answer", ask_answer, do_answer, Scope.OPERATE),
)
