"""What operators do over HTTP: a refusal leaves no operator event, whichever route refuses.

That each control leaves one event of actor and reason is seen in `test_routes`, which calls them
all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.server.routes import ROUTES
from flowfabric.server.table import Route
from flowfabric.states import Role, Scope
from tests.server.conftest import Caller
from tests.server.test_access import send

CONTROLS = [
    each
    for each in ROUTES
    if each.scope in (Scope.OPERATE, Scope.OPERATE_ALL, Scope.ADMIN) and each.method != "GET"
]
TAKES_ANYTHING = {
    "create_budget",  # one without limits
    "mark_worker_dead",  # one that is not there is answered, not refused
}
As = Callable[..., Awaitable[Caller]]


@pytest.mark.parametrize("control", CONTROLS, ids=lambda each: each.name)
async def test_a_refused_control_leaves_no_event(
    control: Route, db: Connection, called_as: As
) -> None:
    admin = await called_as(Role.ADMIN)
    callers = [await called_as(Role.READER), await called_as(Role.CLIENT), admin]
    wrong: dict[str, Any] = {"nonsense": 1} if control.body is not None else {}
    before = await events(db)

    refused = [await send(each, control, body) for each in callers for body in (None, wrong)]

    assert {each.status_code for each in refused[:4]} == {403}
    if control.name in TAKES_ANYTHING:
        refused.pop(4)
        before += control.name == "create_budget"
    assert all(each.status_code >= 400 for each in refused), [each.text for each in refused]
    assert await events(db) == before


async def events(db: Connection) -> int:
    return await db.fetchval("SELECT count(*) FROM ff.operator_event")
