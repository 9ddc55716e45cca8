"""The schedules that an application defines: compared with what is stored, and stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from flowfabric.engine.schedules.definition import ScheduleDefinition
from flowfabric.engine.schedules.diff_schedules import ScheduleDiff
from flowfabric.server.call import ApiCall
from flowfabric.server.routes.execution_reads import check_payloads
from flowfabric.server.table import LARGE, Route, route
from flowfabric.states import Scope


class DefinitionsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules that an application defines."""

    definitions: list[ScheduleDefinition]
    namespace: str | None = None


class SyncRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules that an application defines, and what becomes of those that differ."""

    definitions: list[ScheduleDefinition]
    namespace: str | None = None
    missing_only: bool = False
    prune: bool = False


async def diff_schedules(call: ApiCall, body: DefinitionsRequest) -> ScheduleDiff:
    """How the schedules that an application defines differ from what is stored."""
    check_payloads(call)  # a difference has both values
    namespace = _namespace_of(call, body.namespace, body.definitions)
    return await call.engine.diff_schedules(body.definitions, namespace=namespace)


async def sync_schedules(call: ApiCall, body: SyncRequest) -> ScheduleDiff:
    """Store the schedules that an application defines.

    With `missing_only`, as workers call it when they start, none is changed, and the scope `work`
    is enough. All else needs the scope `operate`: a schedule goes on after its maker's token ends.
    """
    check_payloads(call)
    if body.prune or not body.missing_only or Scope.WORK not in call.principal.scopes:
        call.principal.require(Scope.OPERATE)
    return await call.engine.sync_schedules(
        body.definitions,
        namespace=_namespace_of(call, body.namespace, body.definitions),
        missing_only=body.missing_only,
        prune=body.prune,
        actor=call.actor,
    )


def _namespace_of(
    call: ApiCall, given: str | None, definitions: Sequence[ScheduleDefinition]
) -> str:
    for each in definitions:
        call.namespace(each.namespace)
    return call.namespace(given)


ROUTES: Final[tuple[Route, ...]] = (
    route(
        "POST",
        "/v1/schedules/diff",
        diff_schedules,
        scope=Scope.READ,
        limit=LARGE,
        body=DefinitionsRequest,
        answers={200: ScheduleDiff},
    ),
    route(
        "POST",
        "/v1/schedules/sync",
        sync_schedules,
        scope=Scope.WRITE,
        limit=LARGE,
        body=SyncRequest,
        answers={200: ScheduleDiff},
    ),
)
