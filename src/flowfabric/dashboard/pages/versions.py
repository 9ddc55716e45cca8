"""Versions of an execution: an act on one that has changed since its page was shown is refused."""

from __future__ import annotations

from typing import Final

from flowfabric.dashboard.problems import STALE, PageProblem
from flowfabric.dashboard.table import ActDone, Do
from flowfabric.dashboard.view.sentences import story_line
from flowfabric.dashboard.visit import SEEN, SentForm, Visit
from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
from flowfabric.errors import StaleView
from flowfabric.instants import epoch_ms

_NEWEST: Final = 3
_TRIES: Final = 5


def seen(found: ExecutionSnapshot) -> str:
    """The version of the execution: when it changed last, and what acts depend on."""
    return f"{epoch_ms(found.last_mutation_at)}{_mark(found)}"


def _mark(found: ExecutionSnapshot) -> str:
    epoch = 0 if found.current_lease is None else found.current_lease.lease_epoch
    return f".{found.public_state}.{found.total_attempt_count}.{epoch}"


def now(found: ExecutionSnapshot) -> str:
    """What the execution is now, in a sentence."""
    count = found.total_attempt_count
    return f"It is {found.public_state} now, after {count} attempt{'' if count == 1 else 's'}."


def versioned(do: Do) -> Do:
    """The same act; of an execution that has changed it says what has changed, by 412.

    A progress report of the handler is no change: the act is done with the version after it.
    """

    async def do_unless_changed(visit: Visit, form: SentForm) -> ActDone:
        for _ in range(_TRIES):
            try:
                return await do(visit, form)
            except StaleView as error:
                found = await visit.execution()
                happened = await _since(visit, found, error)
                if happened or not form.text(SEEN).endswith(_mark(found)):
                    detail = now(found) + (f" Newest first: {happened}." if happened else "")
                    raise PageProblem(412, detail, kind=STALE) from None
                form.see(seen(found))
        raise PageProblem(412, "It changes all the time: try again.", kind=STALE)

    return do_unless_changed


async def _since(visit: Visit, found: ExecutionSnapshot, error: StaleView) -> str:
    """The newest events since the version that was seen, in words."""
    page = await visit.engine.read_history(
        found.execution_id, limit=_NEWEST, newest_first=True, families=("operator", "completion")
    )
    lines = [
        story_line(each, hidden=visit.principal.hide_payloads)
        for each in page.entries
        if error.seen_at is None or each.at > error.seen_at
    ]
    return "; ".join(
        each.what + (f" by {each.by}" if each.by else "") + (f" ({each.why})" if each.why else "")
        for each in lines
    )
