"""One execution: why it is where it is, its time, attempts, journal, stream, payloads and story."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from flowfabric.audit import audit_now
from flowfabric.dashboard.answers import Answer, PageAnswer, download
from flowfabric.dashboard.pages.execution_acts import offered
from flowfabric.dashboard.pages.versions import seen
from flowfabric.dashboard.problems import not_found
from flowfabric.dashboard.pulse import execution_topic
from flowfabric.dashboard.table import screen
from flowfabric.dashboard.view.frames import ShownFrame, frame_value
from flowfabric.dashboard.view.json_text import MOST, SHOWN, Payload, payload
from flowfabric.dashboard.view.sentences import story_line
from flowfabric.dashboard.view.strip import strip_of
from flowfabric.dashboard.visit import Visit
from flowfabric.engine.events.read_history import HistoryEntry
from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
from flowfabric.engine.journal.list_steps import RecordedStep
from flowfabric.errors import EngineError
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState, Scope

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


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """Another member of the flow."""

    execution_id: ExecutionId
    label: str
    public_state: PublicState
    where: str


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
    frames, more_frames = await _frames(visit, wanted, attempt)
    values: dict[str, Any] = {
        "x": found,
        "topic": execution_topic(wanted),
        "explanation": explanation,
        "strip": strip_of(found, attempts, history, visit.now),
        "attempts": attempts,
        "story": story[:_STORY],
        "story_left": max(0, len(story) - _STORY),
        "family": family,
        "families": FAMILIES,
        "input": payload(body.payload, body.payload_encoding, redact, hidden=hidden, most=most),
        "result": payload(body.result, body.result_encoding, redact, hidden=hidden, most=most),
        "traceback": None if hidden else body.traceback,
        "steps": await _steps(visit, wanted),
        "waitpoints": await _waitpoints(visit, found),
        "inbox": await _inbox(visit, found),
        "neighbours": await _neighbours(visit, found),
        "offered": offered(visit, found),
        "seen": seen(found),
        "attempt": attempt,
        "frames": frames,
        "more_frames": more_frames,
        "hidden": hidden,
        "resubmit": visit.url("/executions/new", like=f"{wanted.partition_key}.{wanted.uuid}"),
    }
    return PageAnswer(
        template="execution.html", title=found.execution_kind, section="executions", values=values
    )


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


async def _frames(visit: Visit, wanted: ExecutionId, attempt: int) -> tuple[list[ShownFrame], bool]:
    """The newest frames of the attempt, and whether there are older ones."""
    if visit.principal.hide_payloads:
        return [], False
    page = await visit.engine.read_stream(wanted, attempt, count_limit=_FRAMES)
    redact = visit.site.settings.redact
    shown = [frame_value(each, redact) for each in page.frames]
    kind = visit.query("stream")
    if kind:
        shown = [each for each in shown if each.type == kind]
    return shown[-_FRAMES_SHOWN:], len(shown) > _FRAMES_SHOWN


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


async def _waitpoints(visit: Visit, found: ExecutionSnapshot) -> list[Any]:
    if found.public_state.is_terminal:
        return []
    try:
        return (await visit.engine.list_pending_waitpoints(found.execution_id)).waitpoints
    except EngineError:
        return []


async def _inbox(visit: Visit, found: ExecutionSnapshot) -> list[tuple[Any, Payload | None]]:
    """The signals that no wait of the handler has taken."""
    boxes = await visit.engine.read_inbox([found.execution_id])
    box = boxes.get(found.execution_id)
    redact, hidden = visit.site.settings.redact, visit.principal.hide_payloads
    return [
        (each, payload(each.payload, each.encoding, redact, hidden=hidden))
        for each in (() if box is None else box.signals)
    ]


async def _neighbours(visit: Visit, found: ExecutionSnapshot) -> list[Neighbour]:
    """What it waits for, and what waits for it, of the same flow."""
    if found.flow_id is None:
        return []
    engine, own = visit.engine, found.execution_id
    above = await engine.list_edges(found.flow_id, incoming_to=own)
    below = await engine.list_edges(found.flow_id, outgoing_from=own)
    places = {each.upstream: "waits for" for each in above}
    places.update({each.downstream: "waited for by" for each in below})
    places.pop(own, None)
    shown: list[Neighbour] = []
    cursor = None
    while len(shown) < 50:
        page = await engine.list_flow_members(found.flow_id, cursor=cursor)
        shown += [
            Neighbour(
                execution_id=each.execution_id,
                label=each.name or each.execution_kind,
                public_state=each.public_state,
                where=places[each.execution_id],
            )
            for each in page.members
            if each.execution_id in places
        ]
        cursor = page.next_cursor
        if cursor is None:
            break
    return sorted(shown, key=lambda each: each.where, reverse=True)


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
