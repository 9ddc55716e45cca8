"""Changes of many executions: how far each is, what was refused, and an end to it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from flowfabric.dashboard.answers import PageAnswer
from flowfabric.dashboard.problems import PageProblem, not_found
from flowfabric.dashboard.table import ActDone, Dialog, act, screen
from flowfabric.dashboard.view.sentences import state_word
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.engine.bulk.read_bulk_action import BulkAction
from flowfabric.errors import EngineError
from flowfabric.states import BulkState, Scope

_LISTED: Final = 50
_ROWS: Final = 50
HUES: Final = {BulkState.RUNNING: "blue", BulkState.STOPPED: "amber", BulkState.DONE: "green"}
ICONS: Final = {BulkState.RUNNING: "play", BulkState.STOPPED: "slash", BulkState.DONE: "tick"}
_CHANGED: Final = ("changed", "repeated")


class ShownBulk(msgspec.Struct, frozen=True, kw_only=True):
    """A change of many, with what follows from its numbers."""

    action: BulkAction
    label: str
    refused: int
    rate: float | None
    """Executions a second; None before the first batch."""
    left: float | None
    """Seconds until its end at this rate; None if it has ended or has no rate yet."""
    parts: list[tuple[str, int]]
    """Hues and numbers of the bar."""


def shown(found: BulkAction) -> ShownBulk:
    """The action as it is shown."""
    refused = sum(found.refused.values())
    until = found.ended_at or found.last_batch_at
    seconds = None if until is None else max(0.001, (until - found.started_at).total_seconds())
    rate = found.done / seconds if seconds and found.done else None
    running = found.state is BulkState.RUNNING
    given = found.arguments
    more = f" {given.priority}" if given.priority is not None else ""
    more += f" {given.tag_key}={given.tag_value}" if given.tag_key is not None else ""
    return ShownBulk(
        action=found,
        label=f"{found.action.value}{more}",
        refused=refused,
        rate=rate,
        left=(found.total - found.done) / rate if running and rate else None,
        parts=[("green", found.changed), ("grey", found.repeated), ("red", refused)],
    )


async def _found(visit: Visit) -> BulkAction:
    """The action of the path; raises a `PageProblem` for one that cannot be seen."""
    try:
        found = await visit.engine.read_bulk_action(visit.uuid("bulk_id"))
    except EngineError:
        found = None
    if found is None or not visit.principal.sees(found.namespace):
        raise not_found("No such change of executions is known. They are kept for 30 days.")
    return found


def _after(text: str) -> tuple[int, int]:
    """Where a page of executions begins, as the address has it."""
    batch, _, place = text.partition(".")
    if not text:
        return (-1, 0)
    if not all(each.isascii() and each.isdigit() and len(each) < 9 for each in (batch, place)):
        raise PageProblem(422, "The cursor is not one of this page.")
    return (int(batch), int(place))


async def bulk_action(visit: Visit) -> PageAnswer:
    """How far one action is, and what became of its executions."""
    found = await _found(visit)
    results = ["all", *(each for each in _CHANGED if getattr(found, each)), *found.refused]
    first = next(iter(found.refused), "all")
    result = visit.query("result") if visit.query("result") in results else first
    page = await visit.engine.list_bulk_targets(
        found.bulk_id,
        result=None if result == "all" else result,
        after=_after(visit.query("cursor")),
        limit=_ROWS,
    )
    numbers = {"all": found.total, "changed": found.changed, "repeated": found.repeated}
    numbers |= found.refused
    after = page.next_after
    values: dict[str, Any] = {
        "bulk": shown(found),
        "topic": f"bulk.{found.bulk_id}",
        "HUES": HUES,
        "ICONS": ICONS,
        "result": result,
        "results": [(each, numbers[each]) for each in results],
        "rows": page.targets,
        "next": None if after is None else visit.again(cursor=f"{after[0]}.{after[1]}"),
        "first": visit.again(cursor=None) if visit.query("cursor") else None,
    }
    noun = "execution" if found.total == 1 else "executions"
    title = f"{state_word(found.action).capitalize()} {found.total:,} {noun}"
    return PageAnswer(template="bulk.html", title=title, section="executions", values=values)


async def bulk_actions(visit: Visit) -> PageAnswer:
    """The newest actions."""
    found = await visit.engine.list_bulk_actions(namespace=visit.namespace, limit=_LISTED)
    values = {"actions": [shown(each) for each in found], "HUES": HUES, "ICONS": ICONS}
    return PageAnswer(
        template="bulk_list.html", title="Bulk actions", section="executions", values=values
    )


async def ask_stop(visit: Visit) -> Dialog:
    found = await _found(visit)
    left = found.total - found.done
    return Dialog(
        question=f"Stop this change of {found.total:,} executions?",
        effect=f"No further batch runs: about {left:,} executions stay as they are."
        f" The {found.changed:,} that were changed stay changed.",
        button="Stop it",
        back=f"/bulk/{found.bulk_id}",
        danger=True,
    )


async def do_stop(visit: Visit, form: SentForm) -> ActDone:
    found = await _found(visit)
    if found.state is not BulkState.RUNNING:
        raise PageProblem(409, f"It is {found.state} already.", kind="conflict")
    ended = await visit.engine.stop_bulk_action(
        found.bulk_id, actor=visit.actor, reason=form.reason()
    )
    return ActDone(message=f"It is {ended.state}, after {ended.done:,} of {ended.total:,}.")


ROUTES: Final = (
    screen("/bulk", bulk_actions),
    screen("/bulk/{bulk_id}", bulk_action),
    act("/bulk/{bulk_id}/stop", ask_stop, do_stop, Scope.OPERATE),
)
