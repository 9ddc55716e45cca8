"""Schedules: when each fires, what became of its instants, and its controls."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from flowfabric.dashboard.answers import PageAnswer
from flowfabric.dashboard.problems import FormProblem, not_found
from flowfabric.dashboard.table import ActDone, Dialog, DialogField, act, screen
from flowfabric.dashboard.view.durations import length
from flowfabric.dashboard.view.json_text import payload
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.engine.schedules.list_schedule_fires import ScheduleFire
from flowfabric.engine.schedules.schedule import Schedule
from flowfabric.errors import EngineError, NotFound
from flowfabric.schedules.spec import ScheduleSpec
from flowfabric.states import ScheduleOutcome, ScheduleState, Scope

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


def when(spec: ScheduleSpec) -> str:
    """When the schedule fires, in words."""
    if spec.every is not None:
        return f"every {length(spec.every)}"
    return str(spec)


def fire_hue(outcome: ScheduleOutcome) -> str:
    """The colour of what became of an instant."""
    if outcome.value in ("fired", "triggered", "backfilled", "queued"):
        return "green"
    return "amber" if outcome.value == "skipped" else "grey"


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
        "coming": coming,
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


def _controls(found: Schedule) -> list[tuple[str, str]]:
    words = [("trigger", "Trigger now")]
    if found.state is ScheduleState.ACTIVE:
        words.append(("pause", "Pause"))
    elif found.state is not ScheduleState.FINISHED:
        words.append(("resume", "Resume"))
    return [*words, ("backfill", "Backfill"), ("delete", "Delete")]


def _dialog(found: Schedule, question: str, effect: str, button: str, **more: object) -> Dialog:
    given: dict[str, object] = dict(more)
    return Dialog(
        question=question,
        effect=effect,
        button=button,
        back=f"/schedules/{found.name}",
        seen=str(found.revision),
        now=f"It is {found.state} now, in revision {found.revision}.",
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


def _instant(form: SentForm, name: str) -> datetime:
    try:
        found = datetime.fromisoformat(form.text(name).strip())
    except ValueError:
        raise FormProblem(name, "must look like 2026-11-17T12:00") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


async def ask_backfill(visit: Visit) -> Dialog:
    found = await _schedule(visit)
    fields = [
        DialogField(name="start", label="From", hint="UTC, such as 2026-11-01T00:00."),
        DialogField(name="end", label="Until before", hint="At most 10,000 instants."),
    ]
    effect = "Every instant in between that was not fired is fired now, the oldest first."
    return _dialog(found, f"Backfill {found.name}?", effect, "Backfill", fields=fields)


async def do_backfill(visit: Visit, form: SentForm) -> ActDone:
    found = await _schedule(visit)
    answer = await visit.engine.backfill_schedule(
        found.name,
        _instant(form, "start"),
        _instant(form, "end"),
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
    act(f"{_S}/pause", ask_pause, do_pause, Scope.OPERATE),
    act(f"{_S}/resume", ask_resume, do_resume, Scope.OPERATE),
    act(f"{_S}/trigger", ask_trigger, do_trigger, Scope.OPERATE),
    act(f"{_S}/backfill", ask_backfill, do_backfill, Scope.OPERATE),
    act(f"{_S}/delete", ask_delete, do_delete, Scope.OPERATE),
)
