"""Approvals: what waits for a person, what was given, who has answered, and how to answer."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from flowfabric.conditions import Signal
from flowfabric.dashboard.answers import PageAnswer
from flowfabric.dashboard.pages.approval_acts import ROUTES as ACTS
from flowfabric.dashboard.pages.approval_acts import answers_of, can_link, question_of
from flowfabric.dashboard.pages.review_acts import ROUTES as REVIEW_ACTS
from flowfabric.dashboard.pages.review_acts import may_replay
from flowfabric.dashboard.table import screen
from flowfabric.dashboard.view.json_text import Payload, payload
from flowfabric.dashboard.visit import Visit
from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
from flowfabric.engine.executions.search import Search
from flowfabric.engine.suspensions.list_closed_waitpoints import EndedWaitpoint
from flowfabric.engine.suspensions.list_open_waitpoints import OpenWaitpoint
from flowfabric.errors import EngineError
from flowfabric.states import BlockingReason, PublicState

STATES: Final = ("open", "answered", "expired")
_LOOKED_AT: Final = 1000
_SUSPENDED: Final = 200
_CARDS: Final = 20
_CLOSED: Final = 50
_SIGNALS: Final = (BlockingReason.WAITING_FOR_SIGNAL, BlockingReason.WAITING_FOR_APPROVAL)


class ApprovalCard(msgspec.Struct, frozen=True, kw_only=True):
    """An open waitpoint, with what a person needs to answer it."""

    waitpoint: OpenWaitpoint
    question: str
    said: str
    """What the execution waits for, in a sentence."""
    given: Payload | None
    document: Payload | None
    """What the stream of the execution says so far; None if it has none."""
    answers: list[Signal]
    signals: list[str]
    """The answers that there are."""


async def approvals(visit: Visit) -> PageAnswer:
    """What is open, soonest expiry first; or what was answered or has expired, newest first."""
    state = visit.chosen("state", STATES)
    values: dict[str, Any] = {"state": state, "states": STATES, "q": visit.query("q")}
    values |= await (_open(visit) if state == "open" else _closed(visit, state))
    return PageAnswer(
        template="approvals.html", title="Approvals", section="approvals", values=values
    )


class ClosedCard(msgspec.Struct, frozen=True, kw_only=True):
    """A waitpoint that takes no more answers, with those that came."""

    waitpoint: EndedWaitpoint
    question: str
    answers: list[tuple[Signal, str]]
    """Each answer with its comment."""


async def _closed(visit: Visit, state: str) -> dict[str, Any]:
    """What was answered, or has expired, newest first."""
    page = await visit.engine.list_closed_waitpoints(
        "answered" if state == "answered" else "expired",
        namespace=visit.namespace,
        cursor=visit.query("cursor") or None,
        limit=_CLOSED,
    )
    return {
        "closed": [
            ClosedCard(
                waitpoint=each,
                question=each.question or f"{each.waitpoint_key} of {each.execution_kind}",
                answers=[(signal, _comment(visit, signal)) for signal in each.signals],
            )
            for each in page.waitpoints
            if _is_wanted(visit, f"{each.waitpoint_key} {each.question or ''}", each.execution_kind)
        ],
        "older": page.next_cursor,
    }


def _is_wanted(visit: Visit, text: str, execution_kind: str) -> bool:
    """Has it what the page looks for?"""
    wanted, kind = visit.query("q").lower(), visit.query("kind")
    if kind and kind != execution_kind:
        return False
    return not wanted or wanted in f"{text} {execution_kind}".lower()


def _comment(visit: Visit, signal: Signal) -> str:
    """What the person wrote with the answer; empty if the payload has no comment."""
    if visit.principal.hide_payloads or signal.payload is None or signal.encoding != "json":
        return ""
    try:
        return msgspec.json.decode(signal.payload, type=_Commented).comment
    except msgspec.DecodeError:
        return ""


class _Commented(msgspec.Struct, frozen=True):
    comment: str = ""


async def _open(visit: Visit) -> dict[str, Any]:
    engine, namespace = visit.engine, visit.namespace
    page = await engine.list_open_waitpoints(namespace=namespace, limit=_LOOKED_AT)
    far = visit.now.replace(year=visit.now.year + 100)
    waitpoints = sorted(
        [
            each
            for each in page.waitpoints
            if (each.expires_at is None or each.expires_at > visit.now)
            and await _is_asked_for(visit, each)
        ],
        key=lambda each: each.expires_at or far,
    )
    given = visit.query("cursor")
    begin = int(given) if given.isascii() and given.isdigit() and len(given) < 6 else 0
    end = begin + _CARDS
    cards = [await _card(visit, each) for each in waitpoints[begin:end]]
    suspended = Search(namespace=namespace, public_states=(PublicState.SUSPENDED,), sort="old")
    found = (await engine.search_executions(suspended, limit=_SUSPENDED)).executions
    with_waitpoint = {each.execution_id for each in page.waitpoints}
    reviews = await engine.list_reviews(namespace=namespace)
    return {
        "cards": [each for each in cards if each is not None],
        "begin": begin,
        "count": len(waitpoints),
        "more": page.next_cursor is not None,
        "next": end if end < len(waitpoints) else None,
        "before": max(begin - _CARDS, 0) if begin else None,
        "links": can_link(visit),
        "signals": [
            each
            for each in found
            if each.blocking_reason in _SIGNALS and each.execution_id not in with_waitpoint
        ],
        "review": [(each, await may_replay(visit, each.sample)) for each in reviews],
    }


async def _is_asked_for(visit: Visit, waitpoint: OpenWaitpoint) -> bool:
    """Is it one that the page looks for? What it asks is a tag of its execution."""
    if _is_wanted(visit, waitpoint.waitpoint_key, waitpoint.execution_kind):
        return True
    if not visit.query("q"):
        return False
    found = await visit.engine.describe_execution(waitpoint.execution_id)
    tags = {} if found is None else found.tags
    return _is_wanted(visit, question_of(tags, waitpoint), waitpoint.execution_kind)


async def _card(visit: Visit, waitpoint: OpenWaitpoint) -> ApprovalCard | None:
    """None if the execution has gone meanwhile."""
    engine, wanted = visit.engine, waitpoint.execution_id
    found: ExecutionSnapshot | None = await engine.describe_execution(wanted, with_body=True)
    if found is None or found.body is None:
        return None
    stored = await engine.read_waitpoints(wanted, [waitpoint.waitpoint_id])
    kept = stored.get(waitpoint.waitpoint_id)
    try:
        said = (await engine.explain_execution(wanted)).summary
    except EngineError:
        said = ""
    return ApprovalCard(
        waitpoint=waitpoint,
        question=question_of(found.tags, waitpoint),
        said=said,
        given=payload(
            found.body.payload,
            found.body.payload_encoding,
            visit.site.settings.redact,
            hidden=visit.principal.hide_payloads,
        ),
        document=await _document(visit, found),
        answers=[] if kept is None else list(kept.signals),
        signals=answers_of(waitpoint),
    )


async def _document(visit: Visit, found: ExecutionSnapshot) -> Payload | None:
    """The document that the attempt keeps for readers."""
    if visit.principal.hide_payloads or found.current_attempt is None:
        return None
    index = found.current_attempt.attempt_index
    summary = await visit.engine.read_summary(found.execution_id, index)
    if summary is None:
        return None
    return payload(summary.document_json, "json", visit.site.settings.redact)


ROUTES: Final = (screen("/approvals", approvals), *ACTS, *REVIEW_ACTS)
