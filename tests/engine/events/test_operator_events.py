"""What operators did, told to those who subscribe."""

from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.events.subscribe import Hub
from flowfabric.engine.events.subscribe_operator_events import subscribe_operator_events
from flowfabric.states import OperatorEventType
from flowfabric.testing import Clock
from tests import given
from tests.engine.events.facts import emitted, taken


async def test_an_act_is_told_with_all_that_is_known_of_it(
    hub: Hub, db: Connection, clock: Clock
) -> None:
    acts = await subscribe_operator_events(hub)
    execution = await given.created(db, tags={"shop.tenant": "acme"})

    await emitted(
        db, "priority_changed", execution=execution, facts='{"old_priority": 1, "to": [2]}'
    )

    [event] = await taken(acts)
    assert event.event_type is OperatorEventType.PRIORITY_CHANGED
    assert event.execution_id == execution
    assert event.flow_id is None
    assert (event.actor, event.reason) == ("ann", "because")
    assert event.details == {"old_priority": 1, "to": [2]}
    assert event.namespace == "default"
    assert event.tags == {"shop.tenant": "acme"}
    assert event.at == await clock.now()
    assert event.cursor == acts.cursor


async def test_an_act_on_a_flow_or_a_lane_names_no_execution(hub: Hub, db: Connection) -> None:
    acts = await subscribe_operator_events(hub)
    flow = uuid4()
    await db.execute(
        "SELECT ff.emit_operator_event(3::smallint, NULL, $1, 'flow_cancel_requested', 'ann',"
        " NULL, '{}')",
        flow,
    )
    await emitted(db)

    of_a_flow, of_a_lane = await taken(acts, 2)

    assert (of_a_flow.execution_id, of_a_flow.flow_id, of_a_flow.reason) == (None, flow, None)
    assert (of_a_lane.execution_id, of_a_lane.flow_id, of_a_lane.tags) == (None, None, {})


@pytest.mark.parametrize("what", OperatorEventType)
async def test_every_kind_of_act_is_understood(
    hub: Hub, db: Connection, what: OperatorEventType
) -> None:
    acts = await subscribe_operator_events(hub)

    await emitted(db, what)

    assert [event.event_type for event in await taken(acts)] == [what]
