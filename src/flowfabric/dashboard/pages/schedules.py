"""Schedules: when each fires, what became of its instants, and its controls."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from flowfabric.dashboard.answers import PageAnswer
from flowfabric.dashboard.pages import schedule_forms as forms
from flowfabric.dashboard.problems import STALE, FormProblem, PageProblem, not_found
from flowfabric.dashboard.table import LARGE, ActDone, Dialog, DialogField, Preview, act, screen
from flowfabric.dashboard.view.instants import when, zoned
from flowfabric.dashboard.view.json_text import payload
from flowfabric.dashboard.visit import SEEN, SentForm, Visit
from flowfabric.engine.schedules.list_schedule_fires import ScheduleFire
from flowfabric.engine.schedules.schedule import Schedule
from flowfabric.errors import EngineError, NotFound, ScheduleChanged
from flowfabric.states import ScheduleOutcome, ScheduleSource, ScheduleState, Scope

HUES: Final = {
    ScheduleState.ACTIVE: "green",
    ScheduleState.PAUSED: "amber",
    ScheduleState.FINISHED: "grey",
    ScheduleState.BROKEN: "red",
}
_FIRES: Final = 30


class ShownSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with its latest instants, the oldest first."""

    schedule: Schedule
    fires: list[ScheduleFire]

    @property
    def namespace(self) -> str:
        return self.schedule.definition.namespace


def fire_hue(outcome: ScheduleOutcome) -> str:
    """The colour of what became of an instant."""
    if outcome.value in ("fired", "triggered", "backfilled", "queued"):
        return "green"
    if outcome is ScheduleOutcome.MISSED:
        return "hollow"
    return {"skipped": "amber", "refused": "red"}.get(outcome.value, "grey")


async def schedules(visit: Visit) -> PageAnswer:
    """All schedules of the namespaces that are looked at."""
    shown: list[ShownSchedule] = []
    for namespace in (await visit.namespaces())[:50]:
        page = await visit.engine.list_schedules(namespace=namespace, limit=200)
        for each in page.schedules:
            fires = await visit.engine.list_schedule_fires(
                each.name, namespace=namespace, limit=_FIRES
            )
            shown.append(ShownSchedule(schedule=each, fires=fires[::-1]))
    values = {"schedules": shown, "HUES": HUES, "fire_hue": fire_hue, "when": when}
    return PageAnswer(
        template="schedules.html", title="Schedules", section="schedules", values=values
    )


async def _schedule(visit: Visit) -> Schedule:
    name = visit.params["name"]
    for namespace in (await visit.namespaces())[:50]:
        try:
            return await visit.engine.get_schedule(name, namespace=namespace)
        except NotFound:
            continue
    raise not_found(f"There is no schedule {name!r}.")


async def schedule(visit: Visit) -> PageAnswer:
    """One schedule: its call, its next instants, its history."""
    found = await _schedule(visit)
    definition = found.definition
    try:
        coming = await visit.engine.preview_schedule(found.name, 5, namespace=definition.namespace)
    except EngineError:
        coming = []
    values = {
        "schedule": found,
        "definition": definition,
        "coming": zoned(definition.spec, coming),
        "explained": await _explained(visit, found),
        "fires": await visit.engine.list_schedule_fires(
            found.name, namespace=definition.namespace, limit=50
        ),
        "input": payload(
            definition.input_payload,
            definition.payload_encoding,
            visit.site.settings.redact,
            hidden=visit.principal.hide_payloads,
        ),
        "HUES": HUES,
        "fire_hue": fire_hue,
        "when": when,
        "controls": _controls(found),
    }
    return PageAnswer(
        template="schedule.html", title=found.name, section="schedules", values=values
    )


async def _explained(visit: Visit, found: Schedule) -> Any:
    """Why it fires or does not; None if that cannot be said."""
    try:
        return await visit.engine.explain_schedule(found.name, namespace=found.definition.namespace)
    except EngineError:
        return None


def _controls(found: Schedule) -> list[tuple[str, str]]:
    words = [("trigger", "Trigger now")]
    if found.state is ScheduleState.ACTIVE:
        words.append(("pause", "Pause"))
    elif found.state is not ScheduleState.FINISHED:
        words.append(("resume", "Resume"))
    return [("edit", "Edit"), *words, ("backfill", "Backfill"), ("delete", "Delete")]


def _version(found: Schedule) -> str:
    """Changes with what operators change, and not when the schedule fires."""
    return hashlib.sha256(f"{found.state} {found.definition!r}".encode()).hexdigest()[:16]


def _dialog(found: Schedule, question: str, effect: str, button: str, **more: object) -> Dialog:
    given: dict[str, object] = dict(more)
    return Dialog(
        question=question,
        effect=effect,
        button=button,
        back=f"/schedules/{found.name}",
        seen=_version(found),
        now=f"Somebody changed it meanwhile; it is {found.state} now.",
        **given,  # pyright: ignore[reportArgumentType]
    )


async def ask_pause(visit: Visit) -> Dialog:
    found = await _schedule(visit)
    effect = "It fires nothing until somebody resumes it."
    return _dialog(found, f"Pause {found.name}?", effect, "Pause schedule")


async def do_pause(visit: Visit, form: SentForm) -> ActDone:
    found = await _schedule(visit)
    await visit.engine.pause_schedule(
        found.name,
        namespace=found.definition.namespace,
        reason=form.reason(),
        actor=visit.actor,
    )
    return ActDone(message=f"{found.name} is paused.")


async def ask_resume(visit: Visit) -> Dialog:
    found = await _schedule(visit)
    field = DialogField(name="catch_up", label="Also fire what it has missed", kind="check")
    effect = "It fires again from its next instant on."
    return _dialog(found, f"Resume {found.name}?", effect, "Resume schedule", fields=[field])


async def do_resume(visit: Visit, form: SentForm) -> ActDone:
    found = await _schedule(visit)
    await visit.engine.resume_schedule(
        found.name,
        namespace=found.definition.namespace,
        catch_up=form.text("catch_up") == "yes",
        reason=form.reason(),
        actor=visit.actor,
    )
    return ActDone(message=f"{found.name} fires again.")


async def ask_trigger(visit: Visit) -> Dialog:
    found = await _schedule(visit)
    field = DialogField(
        name="force", label="Even while an earlier execution has not ended", kind="check"
    )
    effect = (
        f"One {found.definition.execution_kind} is submitted now; its instants stay as they are."
    )
    return _dialog(found, f"Trigger {found.name}?", effect, "Trigger now", fields=[field])


async def do_trigger(visit: Visit, form: SentForm) -> ActDone:
    found = await _schedule(visit)
    answer = await visit.engine.trigger_schedule(
        found.name,
        namespace=found.definition.namespace,
        force=form.text("force") == "yes",
        reason=form.reason(),
        actor=visit.actor,
    )
    if answer.execution_id is None:
        return ActDone(message=f"Nothing was submitted: {answer.reason or answer.outcome}.")
    return ActDone(message=f"{found.name} was triggered.")


async def ask_edit(visit: Visit) -> Dialog:
    found = await _schedule(visit)
    warning = ""
    if found.definition.source is ScheduleSource.CODE:
        warning = (
            "It is defined in code. What you change stays, and is shown as drift, until somebody"
            " runs ff schedules sync."
        )
    return _dialog(
        found,
        f"Change {found.name}?",
        "What it fires next follows from what it is then; what was due before is not fired.",
        "Change schedule",
        fields=forms.fields(visit, found.definition),
        warning=warning,
    )


async def preview_edit(visit: Visit, form: SentForm) -> Preview:
    changed = forms.definition_of(visit, form, (await _schedule(visit)).definition)
    return forms.upcoming(visit, changed.spec, changed.until)


async def do_edit(visit: Visit, form: SentForm) -> ActDone:
    wanted = form.text(SEEN)
    while True:
        found = await _schedule(visit)
        wanted = wanted or _version(found)
        if _version(found) != wanted:
            raise PageProblem(412, "Somebody changed it meanwhile.", kind=STALE)
        try:
            await visit.engine.update_schedule(
                forms.definition_of(visit, form, found.definition),
                revision=found.revision,
                reason=form.reason(),
                actor=visit.actor,
            )
        except ScheduleChanged:
            continue  # a firing changes the revision too: only another definition is refused
        return ActDone(message=f"{found.name} was changed.")


async def ask_backfill(visit: Visit) -> Dialog:
    found = await _schedule(visit)
    fields = [
        DialogField(name="start", label="From", hint="UTC, such as 2026-11-01T00:00."),
        DialogField(name="end", label="Until before", hint="At most 10,000 instants."),
    ]
    effect = "Every instant in between that was not fired is fired now, the oldest first."
    return _dialog(found, f"Backfill {found.name}?", effect, "Backfill", fields=fields)


async def preview_backfill(visit: Visit, form: SentForm) -> Preview:
    return forms.backfilled(visit, form, await _schedule(visit))


async def do_backfill(visit: Visit, form: SentForm) -> ActDone:
    found = await _schedule(visit)
    start, end = forms.moment(form, "start"), forms.moment(form, "end")
    if start is None or end is None:
        raise FormProblem("start" if start is None else "end", "is needed")
    answer = await visit.engine.backfill_schedule(
        found.name,
        start,
        end,
        namespace=found.definition.namespace,
        reason=form.reason(),
        actor=visit.actor,
    )
    text = f"{len(answer.executions):,} executions were submitted"
    return ActDone(message=f"{text}; {answer.already_fired:,} instants had been fired.")


async def ask_delete(visit: Visit) -> Dialog:
    found = await _schedule(visit)
    effect = "The schedule is gone, with its history. Its executions stay."
    return _dialog(found, f"Delete {found.name}?", effect, "Delete schedule", danger=True)


async def do_delete(visit: Visit, form: SentForm) -> ActDone:
    found = await _schedule(visit)
    await visit.engine.delete_schedule(
        found.name,
        namespace=found.definition.namespace,
        reason=form.reason(),
        actor=visit.actor,
    )
    return ActDone(message=f"{found.name} was deleted.", to=visit.url("/schedules"))


_S: Final = "/schedules/{name}"
ROUTES: Final = (
    screen("/schedules", schedules),
    screen(_S, schedule),
    act("/schedules/new", forms.ask_new, forms.do_new, preview=forms.preview_new, most=LARGE),
    act(f"{_S}/edit", ask_edit, do_edit, preview=preview_edit, most=LARGE),
    act(f"{_S}/pause", ask_pause, do_pause, Scope.OPERATE),
    act(f"{_S}/resume", ask_resume, do_resume, Scope.OPERATE),
    act(f"{_S}/trigger", ask_trigger, do_trigger, Scope.OPERATE),
    act(f"{_S}/backfill", ask_backfill, do_backfill, preview=preview_backfill),
    act(f"{_S}/delete", ask_delete, do_delete, Scope.OPERATE),
)
