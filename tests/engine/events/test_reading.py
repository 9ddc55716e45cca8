"""How an outbox is read: by its index, and honestly when it cannot be."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from flowfabric.db.rows import Connection, positional
from flowfabric.engine.events import completion_events, lease_events, operator_events
from flowfabric.engine.events.subscribe import Hub
from flowfabric.engine.events.subscribe_completions import subscribe_completions
from flowfabric.engine.events.subscribe_lease_history import subscribe_lease_history
from flowfabric.engine.events.subscribe_operator_events import subscribe_operator_events
from flowfabric.errors import Unavailable
from tests.engine.events.facts import taken

TABLES = {
    "completion_event": completion_events,
    "lease_event": lease_events,
    "operator_event": operator_events,
}
NEVER_VACUUMED = "UPDATE pg_class SET relpages = 0, reltuples = -1 WHERE oid = $1::text::regclass"


async def plan(db: Connection, statement: str, *values: int) -> str:
    text, _ = positional(statement)
    return "\n".join(row[0] for row in await db.fetch("EXPLAIN " + text, *values))


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.session("reads the plan of a session with our settings")
async def test_a_page_and_the_newest_id_come_from_the_key(db: Connection, table: str) -> None:
    # One that was empty when it was vacuumed is read by any index, all of which are empty.
    await db.execute(NEVER_VACUUMED, f"ff.{table}")
    page = await plan(db, TABLES[table].READ, 7, 1000, 256)
    newest = await plan(db, TABLES[table].NEWEST)

    for lines in (page, newest):
        assert f"{table}_pkey" in lines
        assert "Seq Scan" not in lines


@pytest.fixture(params=TABLES)
async def absent(
    request: pytest.FixtureRequest, db: Connection, hub: Hub
) -> AsyncGenerator[tuple[Hub, str]]:
    """A hub, and a table that is renamed when the test asks for it."""
    yield hub, request.param
    await db.execute(f"ALTER TABLE IF EXISTS ff.elsewhere RENAME TO {request.param}")


async def test_what_is_no_disconnect_is_raised_as_it_is(
    absent: tuple[Hub, str], db: Connection
) -> None:
    hub, table = absent
    subscription = {
        "completion_event": subscribe_completions,
        "lease_event": subscribe_lease_history,
        "operator_event": subscribe_operator_events,
    }[table]
    events = await subscription(hub)
    await db.execute(f"ALTER TABLE ff.{table} RENAME TO elsewhere")
    await db.execute("SELECT pg_notify('ff_wake', $1)", table.removesuffix("_event"))

    with pytest.raises(Unavailable, match="is the schema migrated"):
        await taken(events)
    with pytest.raises(StopAsyncIteration):
        await taken(events)
    with pytest.raises(Unavailable):
        await subscription(hub)
