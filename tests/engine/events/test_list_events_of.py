"""Events of several outboxes, newest first."""

from datetime import timedelta
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.events.list_events_of import list_events_of
from flowfabric.engine.lanes.set_lane_state import set_lane_state
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.change_priority import change_priority
from flowfabric.errors import ValidationError
from flowfabric.states import LaneState
from flowfabric.testing import Clock
from tests import given

FAMILIES = ("completion", "lease", "operator")


def words(events: list[Any]) -> list[str]:
    return [
        getattr(each, "event_type", None) or getattr(each, "outcome", None) or each.kind
        for each in events
    ]


async def test_outboxes_are_merged_by_time_in_pages_of_any_size(
    db: Connection, clock: Clock
) -> None:
    waiting = await given.created(db, lane_id="slow")
    await change_priority(db, waiting, 5, actor="ann")
    await clock.advance(1)
    lease = await given.claimed(db)
    await clock.advance(1)
    await complete(db, [Completion(lease)])
    await clock.advance(1)
    await set_lane_state(db, "slow", LaneState.PAUSED, actor="bob", reason="x")
    await clock.advance(1)
    await cancel_execution(db, waiting, reason="no", actor="ann")

    whole = (await list_events_of(db, FAMILIES)).events
    assert words(whole)[2:] == [
        "lane_state_changed",
        *words(whole)[3:5],
        "acquired",
        "priority_changed",
    ]
    assert sorted(words(whole)[3:5]) == ["revoked", "success"]
    for limit in (1, 2, 100):
        found, cursors = list[Any](), None
        while cursors is None or cursors:
            page = await list_events_of(db, FAMILIES, cursors=cursors, limit=limit)
            found += page.events
            cursors = page.next_cursors
        assert found == whole

    async def asked(**fields: Any) -> list[str]:
        return words((await list_events_of(db, FAMILIES, filter=EventFilter(**fields))).events)

    assert await asked(actor="ann") == ["cancelled", "priority_changed"]
    assert await asked(types=("success", "acquired")) == ["success", "acquired"]
    assert await asked(execution_id=lease.execution_id, types=("acquired",)) == ["acquired"]
    assert await asked(worker_instance_id="w-1", types=("success",)) == []
    assert set(await asked(lane_id="slow")) == {"cancelled", "lane_state_changed"}
    since = (await clock.now()) - timedelta(seconds=1)
    assert len((await list_events_of(db, FAMILIES, since=since)).events) == 3
    with pytest.raises(ValidationError, match="outbox"):
        await list_events_of(db, ["x"])
    with pytest.raises(ValidationError, match="outboxes"):
        await list_events_of(db, [])
