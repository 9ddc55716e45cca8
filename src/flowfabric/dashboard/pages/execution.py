"""One execution: why it is where it is, its time, attempts, journal, stream, payloads and story."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import msgspec

from flowfabric.audit import audit_now
from flowfabric.conditions import Signal
from flowfabric.dashboard.answers import Answer, PageAnswer, download
from flowfabric.dashboard.pages.budgets import dimensions
from flowfabric.dashboard.pages.execution_acts import offered
from flowfabric.dashboard.pages.execution_flow import near_in_flow, neighbours_of
from flowfabric.dashboard.pages.execution_parts import (
    answer_path,
    budgets_of,
    compared,
    policy_of,
    remedies,
    signals_of,
    submit_command,
)
from flowfabric.dashboard.pages.versions import seen
from flowfabric.dashboard.problems import not_found
from flowfabric.dashboard.pulse import execution_topic
from flowfabric.dashboard.table import screen
from flowfabric.dashboard.view.divergence import divergence_of
from flowfabric.dashboard.view.frames import ShownFrame, frame_value
from flowfabric.dashboard.view.json_text import MOST, SHOWN, Payload, payload
from flowfabric.dashboard.view.policies import policy_words
from flowfabric.dashboard.view.sentences import story_line
from flowfabric.dashboard.view.strip import strip_of
from flowfabric.dashboard.visit import Visit
from flowfabric.engine.events.read_history import HistoryEntry
from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
from flowfabric.engine.journal.list_steps import RecordedStep
from flowfabric.errors import EngineError
from flowfabric.ids import ExecutionId
from flowfabric.states import Scope

_STEPS: Final = 200
_FRAMES: Final = 2000
_FRAMES_SHOWN: Final = 300
_STORY: Final = 100
_EVENTS: Final = 3000
FAMILIES: Final = ("all", "lease", "completion", "operator", "signal")


class ShownStep(msgspec.Struct, frozen=True, kw_only=True):
    """A durable call of the handler, with its value as it is shown."""

    step: RecordedStep
    value: Payload | None


async def execution(visit: Visit) -> PageAnswer:
    """The page of one execution."""
    found = await visit.execution(with_body=True)
    engine, wanted = visit.engine, found.execution_id
    hidden = visit.principal.hide_payloads
    attempts = await engine.list_attempts(wanted)
    history = await _history(visit, wanted)
    family = visit.chosen("family", FAMILIES)
    story = [
        story_line(each, hidden=hidden)
        for each in reversed(history)
        if family in ("all", each.outbox) and each.what != "renewed"
    ]
    try:
        explanation = await engine.explain_execution(wanted)
    except EngineError:
        explanation = None  # it was deleted between two statements
    redact = visit.site.settings.redact
    most = MOST if visit.query("show") == "all" else SHOWN
    body = found.body
    assert body is not None
    attempt = _chosen_attempt(visit, found)
    stream = await _stream(visit, wanted, attempt)
    waitpoints = await _waitpoints(visit, found)
    policy = await policy_of(visit, found)
    steps = await _steps(visit, wanted)
    shown_input = payload(body.payload, body.payload_encoding, redact, hidden=hidden, most=most)
    shown_story, older = _story_page(visit, story)
    values: dict[str, Any] = {
        "x": found,
        "topic": execution_topic(wanted),
        "explanation": explanation,
        "strip": strip_of(found, attempts, history, visit.now, [each.step for each in steps]),
        "attempts": attempts,
        "story": shown_story,
        "story_older": older,
        "compared": compared(attempts, visit.query("attempt"), visit.query("with"), hidden=hidden),
        "remedies": remedies(visit, found, explanation, waitpoints),
        "answer_path": answer_path,
        "policy": None if policy is None else policy_words(policy.policy),
        "replays": None if policy is None else policy,
        "dimensions": dimensions,
        "budgets": await budgets_of(visit, found, policy),
        "signals": await signals_of(visit, found),
        "summary": await _summary(visit, wanted, attempt),
        "command": submit_command(found, shown_input),
        "all_url": visit.again(show="all"),
        "family": family,
        "families": FAMILIES,
        "input": shown_input,
        "result": payload(body.result, body.result_encoding, redact, hidden=hidden, most=most),
        "traceback": None if hidden else body.traceback,
        "steps": steps,
        "diverged": divergence_of(each.message for each in explanation.reasons)
        if explanation
        else [],
        "waitpoints": waitpoints,
        "answered": await _answered(visit, wanted, waitpoints),
        "neighbours": await neighbours_of(visit, found),
        "near": await near_in_flow(visit, found),
        "offered": offered(visit, found),
        "seen": seen(found),
        "attempt": attempt,
        "frames": stream.frames,
        "last_frame": stream.last,
        "more_frames": stream.more,
        "frame_types": sorted(
            {each.type for each in stream.frames} | {visit.query("stream")} - {""}
        ),
        "hidden": hidden,
        "resubmit": visit.url("/executions/new", like=f"{wanted.partition_key}.{wanted.uuid}"),
    }
    title = _title(found, history)
    return PageAnswer(template="execution.html", title=title, section="executions", values=values)


def _title(found: ExecutionSnapshot, history: list[HistoryEntry]) -> str:
    """The kind, after the name that the execution has in its flow."""
    name = history[0].details.get("member_name") if history else None
    kind = found.execution_kind
    return kind if name in (None, kind) else f"{name} \N{MIDDLE DOT} {kind}"


async def _history(visit: Visit, wanted: ExecutionId) -> list[HistoryEntry]:
    """The newest 3,000 events at most, the oldest of them first."""
    found: list[HistoryEntry] = []
    cursor = None
    while len(found) < _EVENTS:
        page = await visit.engine.read_history(wanted, cursor=cursor, newest_first=True)
        found += page.entries
        cursor = page.next_cursor
        if cursor is None:
            break
    return found[::-1]


def _chosen_attempt(visit: Visit, found: ExecutionSnapshot) -> int:
    given = visit.query("attempt")
    if given.isascii() and given.isdigit() and len(given) < 6:
        return int(given)
    return 0 if found.current_attempt is None else found.current_attempt.attempt_index


class ShownStream(msgspec.Struct, frozen=True, kw_only=True):
    """The newest frames of an attempt."""

    frames: list[ShownFrame] = []
    last: str = ""
    """The id of the newest frame, also of one that is not shown."""
    more: bool = False
    """Are there older ones?"""


async def _stream(visit: Visit, wanted: ExecutionId, attempt: int) -> ShownStream:
    if visit.principal.hide_payloads:
        return ShownStream()
    most = _FRAMES if visit.query("frames") == "all" else _FRAMES_SHOWN
    kind = visit.query("stream")
    count = _FRAMES if kind else most + 1
    page = await visit.engine.read_stream(wanted, attempt, count_limit=count, newest=True)
    redact = visit.site.settings.redact
    shown = [frame_value(each, redact) for each in page.frames]
    last = shown[-1].id if shown else ""
    shown = [each for each in shown if not kind or each.type == kind]
    return ShownStream(frames=shown[-most:], last=last, more=len(shown) > most)


async def _steps(visit: Visit, wanted: ExecutionId) -> list[ShownStep]:
    hidden = visit.principal.hide_payloads
    try:
        page = await visit.engine.list_steps(wanted, limit=_STEPS, values=not hidden)
    except EngineError:
        return []
    redact = visit.site.settings.redact
    return [
        ShownStep(step=each, value=payload(each.value, each.encoding, redact))
        for each in page.steps
    ]


async def _answered(
    visit: Visit, wanted: ExecutionId, waitpoints: list[Any]
) -> dict[UUID, list[Signal]]:
    """The answers that open waitpoints have so far, by waitpoint."""
    if not waitpoints:
        return {}
    kept = await visit.engine.read_waitpoints(wanted, [each.waitpoint_id for each in waitpoints])
    return {each: list(found.signals) for each, found in kept.items()}


async def _waitpoints(visit: Visit, found: ExecutionSnapshot) -> list[Any]:
    if found.public_state.is_terminal:
        return []
    try:
        return (await visit.engine.list_pending_waitpoints(found.execution_id)).waitpoints
    except EngineError:
        return []


async def _summary(visit: Visit, wanted: ExecutionId, attempt: int) -> tuple[Any, Any] | None:
    """The document that the attempt keeps for readers, as it is shown."""
    if visit.principal.hide_payloads:
        return None
    found = await visit.engine.read_summary(wanted, attempt)
    if found is None:
        return None
    return found, payload(found.document_json, "json", visit.site.settings.redact)


def _story_page(visit: Visit, story: list[Any]) -> tuple[list[Any], str]:
    """A page of the story, newest first, and where older events are.

    Events are counted from the oldest one, so that a page stays what it is while more happen.
    """
    given = visit.query("before")
    count = int(given) if given.isascii() and given.isdigit() and len(given) < 7 else len(story)
    page = story[max(0, len(story) - count) :][:_STORY]
    left = min(count, len(story)) - len(page)
    return page, visit.again(before=left) if left > 0 else ""


# Payloads as files.


async def payload_file(visit: Visit) -> Answer:
    """The stored bytes of the input or the result, as a file."""
    found = await visit.execution(with_body=True)
    part = visit.params["part"]
    body = found.body
    assert body is not None
    data, encoding = (
        (body.payload, body.payload_encoding)
        if part == "input"
        else (body.result, body.result_encoding)
    )
    if part not in ("input", "result") or data is None or visit.principal.hide_payloads:
        raise not_found(f"The execution has no {part}.")
    visit.require(Scope.ADMIN)  # the file has what the page blots out
    audit_now("payload_read", principal=visit.actor, execution_id=found.execution_id, part=part)
    suffix = "json" if encoding in (None, "json") else "bin"
    return download(data, f"{part}-{str(found.execution_id)[-8:]}.{suffix}")


async def revealed(visit: Visit) -> PageAnswer:
    """Input and result without anything blotted out; for admins, and recorded in the audit log."""
    visit.require(Scope.ADMIN)
    found = await visit.execution(with_body=True)
    body = found.body
    assert body is not None
    audit_now("payload_revealed", principal=visit.actor, execution_id=found.execution_id)
    hidden = visit.principal.hide_payloads
    values = {
        "x": found,
        "input": payload(body.payload, body.payload_encoding, None, hidden=hidden, most=MOST),
        "result": payload(body.result, body.result_encoding, None, hidden=hidden, most=MOST),
    }
    return PageAnswer(
        template="revealed.html", title=found.execution_kind, section="executions", values=values
    )


ROUTES: Final = (
    screen("/executions/{execution_id}", execution),
    screen("/executions/{execution_id}/payload/{part}", payload_file, Scope.ADMIN),
    screen("/executions/{execution_id}/reveal", revealed, Scope.ADMIN),
)
