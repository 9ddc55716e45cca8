"""Answering a waitpoint, and the link by which somebody without a login answers it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final

import msgspec

from flowfabric.dashboard.answer_page import answers_to
from flowfabric.dashboard.problems import FormProblem, PageProblem, not_found
from flowfabric.dashboard.table import ActDone, Dialog, DialogField, act
from flowfabric.dashboard.view.answer_forms import answer_fields, answer_of
from flowfabric.dashboard.view.durations import relative
from flowfabric.dashboard.view.sentences import state_word
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.engine.suspensions.list_open_waitpoints import OpenWaitpoint
from flowfabric.engine.suspensions.read_question import QUESTION_TAG
from flowfabric.engine.suspensions.signal_answers import SignalAccepted
from flowfabric.states import Scope

WORDS: Final = {"approved": "Approve", "rejected": "Deny"}
"""What the usual answers are called on buttons."""


def answers_of(waitpoint: OpenWaitpoint) -> list[str]:
    """The signals that are answers."""
    return answers_to(waitpoint.required_signal_names)


def question_of(tags: Mapping[str, str], waitpoint: OpenWaitpoint) -> str:
    """What is asked, as the execution says it."""
    return tags.get(QUESTION_TAG) or f"{waitpoint.waitpoint_key} of {waitpoint.execution_kind}"


def can_link(visit: Visit) -> bool:
    """Can somebody without a login answer here?"""
    return visit.site.callbacks is not None and visit.may(Scope.OPERATE)


async def _waitpoint(visit: Visit) -> OpenWaitpoint:
    """The open waitpoint of the path; raises a `PageProblem` that says who decided it."""
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
    for each in await visit.engine.list_signals(found.execution_id, limit=100):
        if each.waitpoint_id == wanted:
            who, at = each.source_identity or each.source_type, relative(each.at, visit.now)
            told = f"{who} answered {each.signal_name} {at}: this was decided elsewhere."
            raise not_found(told)
    raise not_found("This was decided elsewhere, or has expired.")


async def ask_answer(visit: Visit) -> Dialog:
    waitpoint = await _waitpoint(visit)
    found = await visit.execution()
    names = answers_of(waitpoint)
    chosen = visit.chosen("signal", names)
    word = WORDS.get(chosen, "Deliver answer")
    stored = await visit.engine.read_waitpoints(waitpoint.execution_id, [waitpoint.waitpoint_id])
    kept = stored.get(waitpoint.waitpoint_id)
    mine = [each for each in (kept.signals if kept else ()) if each.source_identity == visit.actor]
    return Dialog(
        question=question_of(found.tags, waitpoint),
        effect="Your answer is delivered in your name. If it is what the execution waits for, the"
        " execution goes on.",
        button=word,
        back="/approvals",
        danger=chosen == "rejected",
        warning=f"You have answered {mine[-1].signal_name} already; where different people are"
        " needed, it counts once."
        if mine
        else "",
        fields=[
            DialogField(
                name="signal",
                label="Answer",
                kind="select",
                value=chosen,
                choices=[(each, WORDS.get(each, state_word(each))) for each in names],
            ),
            *answer_fields(waitpoint.answer_schema),
            DialogField(name="nonce", label="", kind="hidden", value=secrets.token_urlsafe(12)),
        ],
    )


async def do_answer(visit: Visit, form: SentForm) -> ActDone:
    waitpoint = await _waitpoint(visit)
    signal = form.text("signal").strip()
    if signal not in answers_of(waitpoint):
        raise FormProblem("signal", "must be one of the choices")
    given = answer_of(waitpoint.answer_schema, form.text)
    answer = await visit.engine.deliver_approval_signal(
        waitpoint.execution_id,
        waitpoint.waitpoint_id,
        signal,
        lane_id=waitpoint.lane_id,
        idempotency_suffix=form.text("nonce")[:90] or visit.request_id,
        operator_identity=visit.actor,
        payload=msgspec.json.encode({"comment": form.reason(), **given}),
        encoding="json",
    )
    if not isinstance(answer, SignalAccepted):
        return ActDone(message="This answer was delivered before.")
    went_on = ", and the execution goes on" if answer.resumed else "; others are needed too"
    return ActDone(message=f"{signal} was delivered{went_on}.")


async def ask_link(visit: Visit) -> Dialog:
    waitpoint = await _waitpoint(visit)
    if not can_link(visit):
        raise PageProblem(
            409, "Answers without a login are off: FF_CALLBACKS=1 takes them.", kind="off"
        )
    return Dialog(
        question=f"A link that answers {waitpoint.waitpoint_key}?",
        effect="Everybody who has the link can answer, without a login, until the waitpoint is"
        " decided or expires. All answers by the link count as those of one person.",
        button="Make link",
        back="/approvals",
    )


async def do_link(visit: Visit, form: SentForm) -> ActDone:
    form.reason()
    waitpoint = await _waitpoint(visit)
    token = await visit.engine.read_waitpoint_token(waitpoint.execution_id, waitpoint.waitpoint_id)
    if token is None:
        raise not_found("This was decided elsewhere, or has expired.")
    x = waitpoint.execution_id
    path = f"/answer/{x.partition_key}.{x.uuid}/{waitpoint.waitpoint_id}"
    link = f"{visit.origin}{visit.base}{path}#{token.reveal()}"
    return ActDone(message=f"The link of {waitpoint.waitpoint_key}", secret=link)


_A: Final = "/approvals/{execution_id}/{waitpoint_id}"
ROUTES: Final = (
    act(f"{_A}/answer", ask_answer, do_answer, Scope.OPERATE),
    act(f"{_A}/link", ask_link, do_link, Scope.OPERATE),
)
