"""A new execution, submitted by hand; or one more like an execution that there is."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from flowfabric.api.leaves import parse_execution_id
from flowfabric.dashboard.pages.execution_acts import back, json_field
from flowfabric.dashboard.pages.lanes import live_workers
from flowfabric.dashboard.problems import FormProblem, PageProblem
from flowfabric.dashboard.table import LARGE, ActDone, Dialog, DialogField, Preview, act
from flowfabric.dashboard.view.durations import parse_length, size
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
from flowfabric.engine.lifecycle.create_execution import Duplicate, NewExecution
from flowfabric.errors import EngineError
from flowfabric.ids import ExecutionId
from flowfabric.states import Scope

_SHOWN: Final = 64 * 1024


async def _like(visit: Visit) -> ExecutionSnapshot | None:
    """The execution that the new one is like; None if none is given, or it cannot be seen."""
    given = visit.query("like")
    if not given:
        return None
    try:
        wanted = parse_execution_id(given)
        found = await visit.engine.describe_execution(wanted, with_body=True)
    except EngineError:
        return None
    return found if found is not None and visit.principal.sees(found.namespace) else None


def _input_of(visit: Visit, found: ExecutionSnapshot | None) -> str:
    """The input as text, if it is JSON that the person may see without anything hidden."""
    body = None if found is None else found.body
    if body is None or visit.principal.hide_payloads or not visit.may(Scope.ADMIN):
        return ""
    if body.payload_encoding not in (None, "json") or len(body.payload) > _SHOWN:
        return ""
    return body.payload.decode("utf-8", "replace")


async def ask(visit: Visit) -> Dialog:
    found = await _like(visit)
    kinds = sorted({kind for each in await live_workers(visit) for kind in each.kinds})
    known = f"Live workers serve {', '.join(kinds[:8])}." if kinds else "No live worker is known."
    tags = {} if found is None else found.tags
    namespace = visit.namespace or "default"
    return Dialog(
        question="Submit an execution?",
        effect="A worker that serves its kind on its lane claims it.",
        button="Submit execution",
        back="/executions",
        reason=False,
        fields=[
            DialogField(
                name="kind",
                label="Kind",
                value="" if found is None else found.execution_kind,
                hint=known,
                required=True,
            ),
            DialogField(
                name="lane", label="Lane", value="default" if found is None else found.lane_id
            ),
            DialogField(
                name="namespace",
                label="Namespace",
                value=namespace if found is None else found.namespace,
            ),
            DialogField(
                name="input",
                label="Input",
                kind="area",
                value=_input_of(visit, found),
                hint="JSON, as the handler of the kind takes it.",
            ),
            DialogField(name="", label="", kind="preview"),
            DialogField(name="priority", label="Priority", kind="number", value="0"),
            DialogField(name="delay", label="Delay", hint="Such as 10m; empty: at once."),
            DialogField(
                name="key", label="Idempotency key", hint="The same key is submitted once."
            ),
            DialogField(
                name="tags",
                label="Tags",
                value=" ".join(f"{key}={value}" for key, value in tags.items()),
                hint="Such as shop.tenant=acme, with spaces between.",
            ),
        ],
    )


def _delay(form: SentForm) -> timedelta | None:
    given = form.text("delay").strip()
    found = parse_length(given) if given else None
    if given and found is None:
        raise FormProblem("delay", "must look like 10m or 2h")
    return found


def tags_field(form: SentForm) -> dict[str, str]:
    """The tags of a field, KEY=VALUE with spaces between; raises `FormProblem`."""
    found: dict[str, str] = {}
    for part in form.text("tags").split():
        key, equals, value = part.partition("=")
        if not equals:
            raise FormProblem("tags", f"has {part!r}, which is not KEY=VALUE")
        found[key] = value
    return found


async def preview(visit: Visit, form: SentForm) -> Preview:
    """Can it be submitted so?"""
    data = json_field(form, "input")
    _delay(form)
    tags_field(form)
    if data is None:
        return Preview(text="There is no input.")
    return Preview(text=f"The input is JSON, {size(len(data))}.")


async def do(visit: Visit, form: SentForm) -> ActDone:
    namespace = form.text("namespace").strip() or "default"
    if not visit.principal.sees(namespace):
        raise FormProblem("namespace", "is not one of yours")
    key = form.text("key").strip() or None
    data = json_field(form, "input")
    new = NewExecution(
        execution_id=ExecutionId.mint(
            namespace=namespace, idempotency_key=key, partitions=visit.engine.partitions
        ),
        execution_kind=form.text("kind").strip(),
        lane_id=form.text("lane").strip() or "default",
        namespace=namespace,
        input_payload=data if data is not None else b"",
        payload_encoding=None if data is None else "json",
        priority=form.whole("priority", low=0, high=9000),
        delay=_delay(form),
        idempotency_key=key,
        tags=tags_field(form),
        creator_identity=visit.actor,
    )
    [answer] = await visit.engine.create_execution([new])
    if isinstance(answer, EngineError):
        raise PageProblem(409, str(answer), kind=answer.code)
    word = "was there before" if isinstance(answer, Duplicate) else "was submitted"
    return ActDone(message=f"The execution {word}.", to=visit.url(back(answer.execution_id)))


ROUTES: Final = (act("/executions/new", ask, do, Scope.WRITE, most=LARGE, preview=preview),)
