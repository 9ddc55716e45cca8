"""What operators look at: signals, reviews, spenders, keys in use, and the size of tables."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from flowfabric.db.table_health import TableHealth, table_health
from flowfabric.db.transaction import run
from flowfabric.engine.budgets.list_spend import Spend
from flowfabric.engine.suspensions.count_waitpoints_by_kid import KidUse
from flowfabric.engine.suspensions.list_reviews import ReviewGroup
from flowfabric.engine.suspensions.list_signals import SentSignal
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.pages import NamespaceQuery, PageQuery, check_limit, page, page_of
from flowfabric.server.problems import invalid
from flowfabric.server.table import Route, route
from flowfabric.states import Scope


class LimitQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many."""

    limit: int = 20


class Reviews(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of executions that wait for an operator."""

    items: list[ReviewGroup]


class Spends(msgspec.Struct, frozen=True, kw_only=True):
    """The largest first."""

    items: list[Spend]


class KidUses(msgspec.Struct, frozen=True, kw_only=True):
    """Keys that open waitpoints need."""

    items: list[KidUse]


class Tables(msgspec.Struct, frozen=True, kw_only=True):
    """The largest first."""

    items: list[TableHealth]


async def list_signals(call: ApiCall, query: PageQuery) -> Reply:
    """The signals that the execution was sent, the newest first."""
    more: dict[str, Any] = {}
    if query.cursor is not None:
        if not (query.cursor.isascii() and query.cursor.isdigit() and len(query.cursor) < 19):
            raise invalid("cursor", "is not a cursor of this list")
        more["before"] = int(query.cursor)
    limit = check_limit(query.limit)
    found = await call.engine.list_signals(await call.execution_id(), limit=limit, **more)
    if call.principal.hide_payloads:
        found = [msgspec.structs.replace(each, payload=None) for each in found]
    older = found[-1].event_id if len(found) == limit else None
    return page(call, SentSignal, found, older, query)


async def list_reviews(call: ApiCall, query: NamespaceQuery) -> Reviews:
    """Executions that an operator must let go on, replay or cancel, by kind."""
    return Reviews(items=await call.engine.list_reviews(namespace=call.only(query.namespace)))


async def list_spend(call: ApiCall, query: LimitQuery) -> Spends:
    """Which executions have spent most of a budget."""
    found = await call.engine.list_spend(
        call.uuid("budget_id"), limit=check_limit(query.limit), namespaces=call.namespaces
    )
    return Spends(items=found)


async def count_waitpoints_by_kid(call: ApiCall) -> KidUses:
    """How many open waitpoints each key has signed, and when the last of them expires."""
    return KidUses(items=await call.engine.count_waitpoints_by_kid())


async def list_tables(call: ApiCall) -> Tables:
    """How large the tables are, and how many of their rows are dead."""
    return Tables(items=await run(call.engine.pool, "table_health", table_health))


def _read(path: str, handler: Any, answers: Any, scope: Scope = Scope.READ, **more: Any) -> Route:
    return route("GET", path, handler, scope=scope, answers={200: answers}, **more)


ROUTES: Final[tuple[Route, ...]] = (
    _read(
        "/v1/executions/{execution_id}/signals",
        list_signals,
        page_of(SentSignal),
        query=PageQuery,
    ),
    _read("/v1/reviews", list_reviews, Reviews, query=NamespaceQuery),
    _read("/v1/budgets/{budget_id}/spend", list_spend, Spends, query=LimitQuery),
    _read("/v1/keys/waitpoints", count_waitpoints_by_kid, KidUses, Scope.ADMIN),
    _read("/v1/tables", list_tables, Tables, Scope.ADMIN),
)
