"""What a change of many executions would change."""

from __future__ import annotations

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.bulk.action import ELIGIBLE, BulkArguments, check_action
from flowfabric.engine.executions.count_matching import count_matching
from flowfabric.engine.executions.search import Search, states_of
from flowfabric.engine.executions.search_executions import FoundExecution, search_executions
from flowfabric.states import PublicState

COUNTED = 10_000
_SAMPLES = 5


class BulkPreview(msgspec.Struct, frozen=True, kw_only=True):
    """How many executions match, by state; 10,000 or more of a state if it says 10,000."""

    eligible: dict[PublicState, int]
    """Those that the action can change."""
    refused: dict[PublicState, int]
    """Those that are in a state in which it cannot."""
    samples: list[FoundExecution]
    """At most five."""


async def preview_bulk_action(
    conn: Connection,
    action: str,
    search: Search,
    *,
    arguments: BulkArguments | None = None,
    partitions: int = 256,
) -> BulkPreview:
    """Count what matches, state by state; needs a snapshot. Raises as `start_bulk_action`."""
    kind = check_action(action, arguments or BulkArguments(), "preview")
    eligible: dict[PublicState, int] = {}
    refused: dict[PublicState, int] = {}
    page = await search_executions(conn, search, limit=_SAMPLES, partitions=partitions)
    for state in states_of(search) or tuple(PublicState):
        alone = msgspec.structs.replace(search, public_state=state, public_states=())
        if search.divergent and state is not PublicState.SUSPENDED:
            continue
        counted = await count_matching(conn, alone, at_most=COUNTED, partitions=partitions)
        if counted.count:
            (eligible if state in ELIGIBLE[kind] else refused)[state] = counted.count
    return BulkPreview(eligible=eligible, refused=refused, samples=page.executions)
