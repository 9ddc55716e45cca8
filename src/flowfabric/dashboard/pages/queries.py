"""Filters of the list of executions that people have saved by a name."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, urlencode

import msgspec

from flowfabric.dashboard.pages.filters import PARAMETERS, filter_of
from flowfabric.dashboard.problems import PageProblem, not_found
from flowfabric.dashboard.table import ActDone, Dialog, DialogField, act
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.engine.queries.save_query import SavedQuery
from flowfabric.errors import EngineError
from flowfabric.states import Role, Scope


class SavedChip(msgspec.Struct, frozen=True, kw_only=True):
    """A saved filter above the list."""

    name: str
    href: str
    title: str
    forget: str
    """Where it is forgotten; empty if the person may not."""


def _namespace(visit: Visit) -> str:
    """Filters are kept by namespace; of somebody who looks at all of them in `default`."""
    return visit.namespace or "default"


def _parameters(query: str) -> dict[str, list[str]]:
    """The stored text as parameters; what is none of the list is left out."""
    found: dict[str, list[str]] = {}
    for name, value in parse_qsl(query):
        if name in PARAMETERS:
            found.setdefault(name, []).append(value)
    return found


def _may_forget(visit: Visit, query: SavedQuery) -> bool:
    own = query.owner == visit.actor or visit.principal.role is Role.ADMIN
    return own and not visit.site.settings.readonly


async def saved_chips(visit: Visit) -> list[SavedChip]:
    """The filters of the person, and those that are shared."""
    found = await visit.engine.list_queries(owner=visit.actor, namespace=_namespace(visit))
    return [
        SavedChip(
            name=each.name,
            href=visit.url("/executions", **_parameters(each.query)),
            title=f"saved by {each.owner}" + (", for everybody" if each.shared else ""),
            forget=visit.url(f"/queries/{each.query_id}/forget")
            if _may_forget(visit, each)
            else "",
        )
        for each in found
    ]


def _query(visit: Visit) -> str:
    """The filter in the address as it is stored; raises a `PageProblem` if there is none."""
    wanted = filter_of(visit)
    if wanted.is_empty and wanted.sort == "new":
        raise PageProblem(422, "Filter the list first: there is nothing to save.")
    given = {name: value for name, value in wanted.parameters().items() if value}
    return urlencode(given, doseq=True)


def _check_readonly(visit: Visit) -> None:
    """A reader saves filters of their own; a dashboard that is read-only for all takes none."""
    if visit.site.settings.readonly:
        raise PageProblem(403, "This dashboard is read-only.", kind="read_only")


def _shared(visit: Visit) -> list[DialogField]:
    """What others see is changed by those who may change something."""
    if not visit.may(Scope.WRITE):
        return []
    label = f"For everybody who sees the namespace {_namespace(visit)}"
    return [DialogField(name="shared", label=label, kind="check")]


async def ask_save(visit: Visit) -> Dialog:
    _check_readonly(visit)
    _query(visit)
    wanted = filter_of(visit)
    return Dialog(
        question="Save this filter?",
        effect=f"It stands above the list: {wanted.in_words(visit)}."
        " A filter that you have saved by the same name is replaced.",
        button="Save filter",
        back="/executions",
        fields=[DialogField(name="name", label="Name", required=True), *_shared(visit)],
        reason=False,
    )


async def do_save(visit: Visit, form: SentForm) -> ActDone:
    query = _query(visit)
    saved = await visit.engine.save_query(
        form.text("name").strip(),
        query,
        owner=visit.actor,
        namespace=_namespace(visit),
        shared=bool(form.text("shared")) and visit.may(Scope.WRITE),
    )
    to = visit.url("/executions", **_parameters(query))
    return ActDone(message=f"The filter is saved as {saved.name}.", to=to, reload=True)


async def _found(visit: Visit) -> SavedQuery:
    """The saved filter of the path that the person may forget; raises a `PageProblem`."""
    wanted = visit.uuid("query_id")
    for each in await visit.engine.list_queries(owner=visit.actor, namespace=_namespace(visit)):
        if each.query_id == wanted and _may_forget(visit, each):
            return each
    raise not_found("No such saved filter of yours is known.")


async def ask_forget(visit: Visit) -> Dialog:
    _check_readonly(visit)
    found = await _found(visit)
    return Dialog(
        question=f"Forget the filter {found.name}?",
        effect="It no longer stands above the list"
        + (" of anybody: it is shared." if found.shared else "."),
        button="Forget filter",
        back="/executions",
        reason=False,
    )


async def do_forget(visit: Visit, form: SentForm) -> ActDone:
    found = await _found(visit)
    try:
        await visit.engine.forget_query(
            found.query_id, owner=found.owner, namespace=found.namespace
        )
    except EngineError:  # somebody else was faster
        raise not_found("No such saved filter of yours is known.") from None
    return ActDone(message=f"The filter {found.name} is forgotten.", reload=True)


ROUTES: Final = (
    act("/queries/save", ask_save, do_save, Scope.ANY),
    act("/queries/{query_id}/forget", ask_forget, do_forget, Scope.ANY),
)
