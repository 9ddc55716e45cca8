"""The navigation: the screens that there are, and that the person may look at."""

from __future__ import annotations

from typing import Final

import msgspec

from flowfabric.dashboard.visit import Visit
from flowfabric.states import Scope


class Entry(msgspec.Struct, frozen=True):
    """An entry: where it goes, its icon, and the key that goes there after `g`."""

    section: str
    label: str
    path: str
    icon: str
    key: str
    scope: Scope = Scope.READ


ENTRIES: Final = (
    Entry("overview", "Overview", "/", "overview", "o"),
    Entry("executions", "Executions", "/executions", "list", "e"),
    Entry("flows", "Flows", "/flows", "flow", "f"),
    Entry("approvals", "Approvals", "/approvals", "inbox", "a"),
    Entry("schedules", "Schedules", "/schedules", "calendar", "s"),
    Entry("lanes", "Lanes", "/lanes", "lanes", "l"),
    Entry("workers", "Workers", "/workers", "worker", "w"),
    Entry("budgets", "Budgets", "/budgets", "gauge", "b"),
    Entry("events", "Events", "/events", "events", "v"),
    Entry("keys", "Keys", "/keys", "key", "k", Scope.ADMIN),
    Entry("settings", "Settings", "/settings", "settings", ","),
)


def entries(visit: Visit) -> list[Entry]:
    """Those whose screens exist."""
    from flowfabric.dashboard.routes import PATHS  # the pages use this module's callers

    return [each for each in ENTRIES if each.path in PATHS and visit.may(each.scope)]
