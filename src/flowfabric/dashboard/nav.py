"""The navigation: the screens that there are, and that the person may look at."""

from __future__ import annotations

from typing import Final

import msgspec

from flowfabric.dashboard.visit import Visit
from flowfabric.states import Scope


class NavEntry(msgspec.Struct, frozen=True):
    """An entry: where it goes, its icon, and the key that goes there after `g`."""

    section: str
    label: str
    path: str
    icon: str
    key: str
    scope: Scope = Scope.READ


ENTRIES: Final = (
    NavEntry("overview", "Overview", "/", "overview", "o"),
    NavEntry("executions", "Executions", "/executions", "list", "e"),
    NavEntry("flows", "Flows", "/flows", "flow", "f"),
    NavEntry("approvals", "Approvals", "/approvals", "inbox", "a"),
    NavEntry("schedules", "Schedules", "/schedules", "calendar", "s"),
    NavEntry("lanes", "Lanes", "/lanes", "lanes", "l"),
    NavEntry("workers", "Workers", "/workers", "worker", "w"),
    NavEntry("budgets", "Budgets", "/budgets", "gauge", "b"),
    NavEntry("events", "Events", "/events", "events", "v"),
    NavEntry("keys", "Keys", "/keys", "key", "k", Scope.ADMIN),
    NavEntry("settings", "Settings", "/settings", "settings", ","),
)


def entries(visit: Visit) -> list[NavEntry]:
    """Those whose screens exist."""
    from flowfabric.dashboard.routes import PATHS  # the pages use this module's callers

    return [each for each in ENTRIES if each.path in PATHS and visit.may(each.scope)]
