"""Every screen and every act of the dashboard."""

from __future__ import annotations

import re
from typing import Final

from starlette.routing import compile_path

from flowfabric.dashboard.pages import (
    approvals,
    budgets,
    bulk,
    bulk_actions,
    events,
    execution,
    execution_acts,
    executions,
    flow,
    flow_acts,
    flows,
    keys,
    lanes,
    new_execution,
    overview,
    queries,
    quotas,
    schedules,
    search,
    settings,
    workers,
)
from flowfabric.dashboard.table import Act, Screen

ROUTES: Final[tuple[Screen | Act, ...]] = (
    *overview.ROUTES,
    *executions.ROUTES,
    *new_execution.ROUTES,
    *bulk.ROUTES,
    *queries.ROUTES,
    *bulk_actions.ROUTES,
    *execution.ROUTES,
    *execution_acts.ROUTES,
    *flows.ROUTES,
    *flow.ROUTES,
    *flow_acts.ROUTES,
    *approvals.ROUTES,
    *schedules.ROUTES,
    *lanes.ROUTES,
    *workers.ROUTES,
    *budgets.ROUTES,
    *quotas.ROUTES,
    *events.ROUTES,
    *keys.ROUTES,
    *search.ROUTES,
    *settings.ROUTES,
)
PATHS: Final = frozenset(each.path for each in ROUTES if isinstance(each, Screen))


def _order(path: str) -> list[tuple[bool, str]]:
    """Paths with a text come before those with a parameter at the same place."""
    return [(part.startswith("{"), part) for part in path.split("/")]


_PATTERNS: Final[list[tuple[re.Pattern[str], Screen | Act]]] = [
    (compile_path(each.path)[0], each) for each in sorted(ROUTES, key=lambda row: _order(row.path))
]


def find(path: str) -> tuple[Screen | Act, dict[str, str]] | None:
    """The row of the table for this path, and the texts in the path."""
    for pattern, row in _PATTERNS:
        found = pattern.match(path)
        if found is not None:
            return row, found.groupdict()
    return None
