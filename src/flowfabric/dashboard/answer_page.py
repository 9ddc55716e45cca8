"""The page of a signed link: the question of a waitpoint, shown to the holder of its token.

The token is in the fragment of the address, so no log and no referrer has it. The page shows
nothing until its script sends the token; a GET changes nothing, so programs that look at links in
mails answer nothing.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import msgspec

from flowfabric.api.leaves import parse_execution_id
from flowfabric.dashboard.answers import HTML, Raw
from flowfabric.dashboard.problems import FormProblem, not_found
from flowfabric.dashboard.render import render_bare
from flowfabric.dashboard.site import Site
from flowfabric.dashboard.view.answer_forms import PREFIX, answer_fields, answer_of
from flowfabric.dashboard.view.durations import iso
from flowfabric.engine.suspensions.read_question import Question
from flowfabric.engine.suspensions.signal_answers import SignalAccepted
from flowfabric.errors import (
    NotFound,
    StateError,
    TokenExpired,
    ValidationError,
)
from flowfabric.ids import ExecutionId, parse_uuid
from flowfabric.tokens import WaitpointToken

USUAL: Final = ("approved", "rejected")
"""The answers to a question that takes any signal."""
_LONGEST: Final = 1000


class _Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What the script sends: the token alone to read the question, a signal to answer it."""

    token: str
    signal: str = ""
    name: str = ""
    comment: str = ""
    nonce: str = ""
    fields: dict[str, str] = {}
    """What was typed into the fields of the answer."""


async def answer_page(
    site: Site, base: str, path: str, body: bytes, *, method: str, address: str
) -> Raw:
    """The page, the question, or what became of the answer."""
    meter = site.callbacks
    if meter is None or site.settings.readonly:
        raise not_found()
    if method != "POST":

        def asset(name: str) -> str:
            return base + site.assets.path(name)

        page = render_bare("answer.html", {"asset": asset})
        return Raw(data=page, media=HTML, headers={"referrer-policy": "no-referrer"})
    meter.count(address)
    try:
        sent = msgspec.json.decode(body, type=_Sent)
        where = _where(path)
        question = await site.engine.read_question(*where, sent.token)
        if sent.signal:
            return await _deliver(site, where, sent, question)
    except TokenExpired:
        return _told(403, "This link has expired.")
    except (NotFound, ValidationError, msgspec.DecodeError):  # forged and unknown are told alike
        return _told(403, "This link is not valid.")
    return _json(200, _shown(question))


def _where(path: str) -> tuple[ExecutionId, UUID]:
    """The waitpoint of the path; raises `ValidationError`."""
    parts = path.removeprefix("/answer/").split("/")
    if len(parts) != 2:
        raise not_found()
    return parse_execution_id(parts[0]), parse_uuid(parts[1], field="waitpoint_id")


def answers_to(required: tuple[str, ...]) -> list[str]:
    """The signals that are answers."""
    return list(required) or list(USUAL)


def _shown(question: Question) -> dict[str, Any]:
    return {
        "question": question.question or f"{question.waitpoint_key} of {question.execution_kind}",
        "kind": question.execution_kind,
        "open": question.open,
        "expires": None if question.expires_at is None else iso(question.expires_at),
        "signals": answers_to(question.required_signal_names),
        "fields": [
            {
                "name": each.name,
                "label": each.label,
                "kind": each.kind,
                "value": each.value,
                "hint": each.hint,
                "choices": each.choices,
            }
            for each in answer_fields(question.answer_schema)
        ],
        "answers": [
            {"signal": each.signal_name, "by": each.source_identity, "at": iso(each.accepted_at)}
            for each in question.answers
        ],
    }


async def _deliver(
    site: Site, where: tuple[ExecutionId, UUID], sent: _Sent, question: Question
) -> Raw:
    """All answers of one link are of one source, whatever name is typed."""
    if sent.signal not in answers_to(question.required_signal_names):
        return _told(422, "This is not one of the answers.")
    try:
        given = answer_of(question.answer_schema, lambda name: sent.fields.get(name, ""))
    except FormProblem as error:
        field = error.field.removeprefix(PREFIX)
        return _json(422, {"wrong": f"{field.replace('_', ' ').capitalize()} {error.detail}."})
    said = {"name": sent.name[:_LONGEST], "comment": sent.comment[:_LONGEST], **given}
    try:
        answer = await site.engine.deliver_signal(
            *where,
            sent.token,
            sent.signal,
            signal_category="approval",
            source_type="link",
            source_identity=f"link:{WaitpointToken(sent.token).fingerprint}",
            payload=msgspec.json.encode(said),
            encoding="json",
            idempotency_key=f"link:{sent.nonce[:100]}",
        )
    except StateError:
        return _told(409, "It was decided already, or has expired.")
    resumed = isinstance(answer, SignalAccepted) and answer.resumed
    text = "Your answer is delivered" + (", and the work goes on." if resumed else ".")
    return _told(200, text)


def _told(status: int, text: str) -> Raw:
    return _json(status, {"told": text})


def _json(status: int, value: dict[str, Any]) -> Raw:
    return Raw(data=msgspec.json.encode(value), media="application/json", status=status)
