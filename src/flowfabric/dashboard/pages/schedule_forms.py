"""Schedules that are made, changed and backfilled by hand, with what that would fire."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from flowfabric.dashboard.pages.execution_acts import json_field
from flowfabric.dashboard.pages.new_execution import tags_field
from flowfabric.dashboard.problems import FormProblem
from flowfabric.dashboard.table import ActDone, Dialog, DialogField, Preview
from flowfabric.dashboard.view.durations import as_length, parse_length
from flowfabric.dashboard.view.instants import when, zoned
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.engine.schedules.definition import ScheduleDefinition
from flowfabric.engine.schedules.schedule import Schedule
from flowfabric.errors import ValidationError
from flowfabric.instants import epoch_ms, instant
from flowfabric.schedules.next_after import next_instants
from flowfabric.schedules.spec import ScheduleSpec, spec_of
from flowfabric.states import ScheduleOverlap, ScheduleSource, Scope

SHOWN: Final = 5
MOST: Final = 10_000
_LISTED: Final = 100
_OVERLAPS: Final = (
    (ScheduleOverlap.SKIP, "skip: it is not fired"),
    (ScheduleOverlap.ALLOW, "allow: both run"),
    (ScheduleOverlap.QUEUE_ONE, "queue one: one waits, further ones are skipped"),
    (ScheduleOverlap.QUEUE_ALL, "queue all: each waits for the one before"),
    (ScheduleOverlap.CANCEL_RUNNING, "cancel running: the earlier one is cancelled"),
)
_BLANK: Final = ScheduleDefinition(
    name="new", spec=spec_of(cron="0 2 * * *"), execution_kind="kind", catch_up=1
)


def _sees_input(visit: Visit, definition: ScheduleDefinition) -> bool:
    """May the person read the input, with everything that pages blot out?"""
    json = definition.payload_encoding in (None, "json")
    return visit.may(Scope.ADMIN) and not visit.principal.hide_payloads and json


def fields(visit: Visit, found: ScheduleDefinition | None) -> list[DialogField]:
    """The fields of a schedule; of a new one with what is usual."""
    d = found or _BLANK
    spec, new = d.spec, found is None
    named = [
        DialogField(
            name="name", half=True, label="Name", required=True, hint="It cannot be changed later."
        ),
        DialogField(
            name="namespace", half=True, label="Namespace", value=visit.namespace or "default"
        ),
    ]
    shown = found is not None and _sees_input(visit, d)
    hint = "JSON, as the handler takes it."
    if found is not None and not shown:
        hint += " What is stored is not shown: empty leaves it as it is."
    tags = {key: value for key, value in d.tags.items() if not key.startswith("ff.")}
    return [
        *(named if new else ()),
        DialogField(
            name="cron",
            half=True,
            label="Cron",
            value=spec.cron or "",
            group="When it fires",
            hint="0 2 * * *; or one of the two below.",
        ),
        DialogField(
            name="tz",
            half=True,
            label="Zone of the cron expression",
            value=spec.tz,
            hint="Such as Europe/Berlin.",
        ),
        DialogField(
            name="every",
            half=True,
            label="Every",
            value=as_length(spec.every) if spec.every else "",
        ),
        DialogField(
            name="at",
            half=True,
            label="Once at",
            value=spec.at.isoformat() if spec.at else "",
            hint="Such as 2026-12-24T18:00, UTC.",
        ),
        DialogField(name="next", label="", kind="preview"),
        DialogField(
            name="kind",
            half=True,
            label="Kind",
            value="" if new else d.execution_kind,
            required=True,
            group="What it submits",
        ),
        DialogField(name="lane", half=True, label="Lane", value=d.lane_id),
        DialogField(
            name="input",
            label="Input",
            kind="area",
            value=d.input_payload.decode("utf-8", "replace") if shown else "",
            hint=hint,
        ),
        DialogField(
            name="priority", half=True, label="Priority", kind="number", value=str(d.priority)
        ),
        DialogField(
            name="tags",
            half=True,
            label="Tags",
            value=" ".join(f"{k}={v}" for k, v in tags.items()),
            hint="area.name=value …",
        ),
        DialogField(
            name="overlap",
            label="While an earlier execution has not ended",
            kind="select",
            value=d.overlap.value,
            choices=[(each.value, words) for each, words in _OVERLAPS],
            group="Rules",
        ),
        DialogField(
            name="catch_up",
            half=True,
            label="Missed instants that are fired later",
            kind="number",
            value=str(d.catch_up),
            hint="The newest of those missed while nothing could fire; 0: none.",
        ),
        DialogField(
            name="catch_up_window",
            half=True,
            label="But none that is older than",
            value=as_length(_as_timedelta(d.catch_up_window)),
        ),
        DialogField(
            name="jitter",
            half=True,
            label="Delayed by up to",
            value=as_length(_as_timedelta(d.jitter)),
            hint="So that many schedules do not begin at once.",
        ),
        DialogField(
            name="until",
            half=True,
            label="Until",
            value=d.until.isoformat() if d.until else "",
            hint="UTC; empty: for ever.",
        ),
    ]


def _as_timedelta(given: float | timedelta) -> timedelta:
    return given if isinstance(given, timedelta) else timedelta(seconds=given)


def _length(form: SentForm, name: str, kept: timedelta) -> timedelta:
    given = form.text(name).strip()
    if given == as_length(kept):
        return kept
    found = parse_length(given)
    if found is None:
        raise FormProblem(name, "must look like 30s, 15m or 2h")
    return found


def moment(form: SentForm, name: str) -> datetime | None:
    """An instant, UTC if it names no zone; None if the field is empty."""
    given = form.text(name).strip()
    if not given:
        return None
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        raise FormProblem(name, "must look like 2026-11-17T12:00") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _spec(form: SentForm, kept: ScheduleSpec) -> ScheduleSpec:
    """When it fires; an interval that stays keeps its rhythm."""
    cron, every = form.text("cron").strip() or None, form.text("every").strip()
    at = moment(form, "at")
    chosen = [name for name, each in (("cron", cron), ("every", every), ("at", at)) if each]
    if len(chosen) != 1:
        raise FormProblem("cron", "or Every or Once at is needed: one of the three")
    long = _length(form, "every", kept.every or timedelta()) if every else None
    tz = form.text("tz").strip() or None
    spec = _checked(lambda: spec_of(cron=cron, tz=tz if cron else None, every=long, at=at))
    if long is not None and long == kept.every:
        return msgspec.structs.replace(spec, anchor=kept.anchor)
    return spec


def _checked(make: Any) -> Any:
    """What is made; a value that the engine refuses is named as a field of the form."""
    try:
        return make()
    except ValidationError as error:
        if error.field in ("cron", "tz", "every", "at", "until", "catch_up", "jitter", "name"):
            raise FormProblem(error.field, error.detail) from None
        raise


def definition_of(
    visit: Visit, form: SentForm, found: ScheduleDefinition | None
) -> ScheduleDefinition:
    """What the form defines; what it has no field for stays as it was."""
    base = found or _BLANK
    given: dict[str, Any] = {}
    if found is None:
        namespace = form.text("namespace").strip() or "default"
        if not visit.principal.sees(namespace):
            raise FormProblem("namespace", "is not one of yours")
        given = {
            "name": form.text("name").strip(),
            "namespace": namespace,
            "source": ScheduleSource.API,
        }
    data = json_field(form, "input")
    if data is not None or found is None or _sees_input(visit, base):
        given |= {
            "input_payload": data or b"",
            "payload_encoding": None if data is None else "json",
        }
    own = {key: value for key, value in base.tags.items() if key.startswith("ff.")}
    return _checked(
        lambda: msgspec.structs.replace(
            base,
            **given,
            spec=_spec(form, base.spec),
            execution_kind=form.text("kind").strip(),
            lane_id=form.text("lane").strip() or "default",
            priority=form.whole("priority", low=0, high=9000),
            tags={**own, **tags_field(form)},
            overlap=ScheduleOverlap(form.text("overlap", "skip")),
            catch_up=form.whole("catch_up", low=0, high=1000),
            catch_up_window=_length(form, "catch_up_window", _as_timedelta(base.catch_up_window)),
            jitter=_length(form, "jitter", _as_timedelta(base.jitter)),
            until=moment(form, "until"),
        )
    )


def lines_of(spec: ScheduleSpec, instants: Sequence[int]) -> list[str]:
    """Instants on the clock of the schedule, and in UTC."""
    shown = zoned(spec, [instant(each) for each in instants])
    return [
        each.text
        + ("" if spec.tz == "UTC" else f" ({each.at:%H:%M} UTC)")
        + (", the clock has changed" if each.clock_changed else "")
        for each in shown
    ]


def upcoming(visit: Visit, spec: ScheduleSpec, until: datetime | None) -> Preview:
    """What a schedule like this would fire next."""
    now_ms = epoch_ms(visit.now)
    if spec.every is not None and spec.anchor is None:
        spec = msgspec.structs.replace(spec, anchor=visit.now)
    last = None if until is None else epoch_ms(until)
    found = next_instants(spec, now_ms, SHOWN, until_ms=last)
    if not found:
        return Preview(text="It would never fire.", wrong=True)
    return Preview(text=f"{when(spec)}. Next:", lines=lines_of(spec, found))


def backfilled(visit: Visit, form: SentForm, found: Schedule) -> Preview:
    """Which instants lie in the range of the form."""
    start, end = moment(form, "start"), moment(form, "end")
    if start is None or end is None:
        return Preview(text="")
    if end > visit.now:
        return Preview(text="The end must not be in the future.", wrong=True)
    spec = found.definition.spec
    instants = next_instants(
        spec, epoch_ms(start) - 1, MOST + 1, until_ms=max(0, epoch_ms(end) - 1)
    )
    if len(instants) > MOST:
        return Preview(text=f"There are more than {MOST:,} instants in it.", wrong=True)
    text = f"{len(instants):,} instants lie in it; those that were fired are not fired again."
    return Preview(text=text, lines=lines_of(spec, instants[:_LISTED]))


# A new one.


async def ask_new(visit: Visit) -> Dialog:
    return Dialog(
        question="Make a schedule?",
        effect="It submits the call at every instant, exactly once, whatever crashes.",
        button="Make schedule",
        back="/schedules",
        reason=False,
        fields=fields(visit, None),
    )


async def preview_new(visit: Visit, form: SentForm) -> Preview:
    return upcoming(visit, _spec(form, _BLANK.spec), moment(form, "until"))


async def do_new(visit: Visit, form: SentForm) -> ActDone:
    made = await visit.engine.create_schedule(definition_of(visit, form, None), actor=visit.actor)
    to = visit.url(f"/schedules/{made.name}")
    return ActDone(message=f"{made.name} was made.", to=to)
