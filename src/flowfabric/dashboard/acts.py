"""Acts: a dialog that asks for a reason, and the change that follows it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from flowfabric.api.problems import status_of
from flowfabric.audit import acting_for
from flowfabric.dashboard.answers import HTML, Answer, PageAnswer, Raw, Redirect
from flowfabric.dashboard.problems import STALE, FormProblem, PageProblem
from flowfabric.dashboard.render import render_block
from flowfabric.dashboard.table import Act, ActDone, Dialog, Preview
from flowfabric.dashboard.visit import SEEN, SentForm, Visit
from flowfabric.errors import FlowFabricError

FRAGMENT: Final = b"x-ff-dialog"
"""The header by which a script asks for the dialog alone."""
PREVIEW: Final = "_preview"
"""The field of the button that asks what the form would do."""


async def ask(act: Act, visit: Visit) -> Answer:
    """The dialog."""
    visit.require(act.scope)
    dialog: Dialog = await act.ask(visit)
    shown = visit.query(SEEN)
    if dialog.seen and shown:  # the version of the page that has the link, not of this moment
        dialog = msgspec.structs.replace(dialog, seen=shown)
    preview = None
    if act.preview is not None:
        started = [(each.name, each.value) for each in dialog.fields]
        preview = await _preview(act, visit, SentForm(started), quiet=True)
    return _dialog(visit, dialog, preview=preview)


async def _preview(act: Act, visit: Visit, form: SentForm, *, quiet: bool = False) -> Preview:
    """What the form as it is would do; with `quiet` nothing is said of what is wrong with it."""
    try:
        return await act.preview(visit, form)
    except (FormProblem, PageProblem, FlowFabricError) as error:
        return Preview(text="" if quiet else str(error), wrong=True)


async def do(act: Act, visit: Visit, form: SentForm) -> Answer:
    """Do it, or show the dialog again with what is wrong."""
    visit.require(act.scope)
    dialog: Dialog = await act.ask(visit)
    blank = None if act.preview is None else Preview(text="")
    if act.preview is not None and form.text(PREVIEW):
        return _dialog(visit, dialog, form=form, preview=await _preview(act, visit, form))
    if dialog.compared and dialog.seen and form.text(SEEN) not in ("", dialog.seen):
        wrong = {"kind": STALE, "title": "It changed while you looked", "detail": dialog.now}
        return _dialog(visit, dialog, status=412, form=form, wrong=wrong, preview=blank)
    try:
        why = form.reason() if dialog.reason else None
        with acting_for(visit.principal.label, visit.request_id, reason=why):
            done: ActDone = await act.do(visit, form)
    except FormProblem as error:
        return _dialog(visit, dialog, status=422, form=form, field=error, preview=blank)
    except PageProblem as error:
        if error.kind == STALE:  # it is sent again with the version that is shown now
            dialog = await act.ask(visit)
        wrong = {"kind": error.kind, "title": error.title, "detail": error.detail}
        return _dialog(visit, dialog, status=error.status, form=form, wrong=wrong, preview=blank)
    except FlowFabricError as error:
        status = status_of(error)
        wrong = {"kind": error.code, "title": "It was not done", "detail": str(error)}
        return _dialog(visit, dialog, status=status, form=form, wrong=wrong, preview=blank)
    to = done.to or visit.url(dialog.back)
    if done.secret:
        page = PageAnswer(
            template="secret.html", title=done.message, values={"done": done, "to": to}
        )
        if FRAGMENT in visit.headers:
            return Raw(data=_rendered(visit, page), media=HTML)
        return page
    if FRAGMENT in visit.headers:
        link = visit.base + done.link if done.link else ""
        answer = {"message": done.message, "to": to, "link": link, "reload": done.reload}
        data = msgspec.json.encode(answer)
        return Raw(data=data, media="application/json")
    return Redirect(to=to, toast=done.message)


def _dialog(
    visit: Visit,
    dialog: Dialog,
    *,
    status: int = 200,
    form: SentForm | None = None,
    field: FormProblem | None = None,
    wrong: dict[str, Any] | None = None,
    preview: Preview | None = None,
) -> Answer:
    given = {} if form is None else form.given()
    values = {
        "dialog": dialog,
        "given": given,
        "preview": preview,
        "wrong": wrong,
        "field_problem": field,
        "action": visit.again(),
        "request_id": visit.request_id,
    }
    page = PageAnswer(template="act.html", title=dialog.question, values=values, status=status)
    if FRAGMENT in visit.headers:
        return Raw(data=_rendered(visit, page), media=HTML, status=status)
    return page


def _rendered(visit: Visit, page: PageAnswer) -> bytes:
    body = render_block(visit, page, "dialog")
    assert body is not None
    return body
