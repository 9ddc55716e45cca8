"""active → active: how far the holder has come."""

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.progress import progress
from flowfabric.errors import ValidationError
from flowfabric.testing import Clock
from tests import given


async def test_progress_is_stored_and_nothing_else_changes(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    await clock.advance(5)
    before = await given.row(db, lease.execution_id)

    assert await progress(db, lease, percent=40, message="halfway there") is None

    after = await given.row(db, lease.execution_id)
    assert after == before | {
        "progress_pct": 40,
        "progress_message": "halfway there",
        "last_mutation_at_ms": await clock.now_ms(),
    }
    assert await given.lease_events(db, lease.execution_id) == [("acquired", None)]
    assert await given.completion_events(db, lease.execution_id) == []
    assert await given.attempts(db, lease.execution_id) == []


async def test_only_the_given_field_is_overwritten(db: Connection) -> None:
    lease = await given.claimed(db)
    await progress(db, lease, percent=10, message="first")

    await progress(db, lease, percent=20)
    stored = await given.row(db, lease.execution_id)
    assert (stored["progress_pct"], stored["progress_message"]) == (20, "first")
    await progress(db, lease, message="second")
    stored = await given.row(db, lease.execution_id)
    assert (stored["progress_pct"], stored["progress_message"]) == (20, "second")
    await progress(db, lease, percent=0, message="")
    stored = await given.row(db, lease.execution_id)
    assert (stored["progress_pct"], stored["progress_message"]) == (0, "")


@pytest.mark.parametrize("percent", [0, 100])
async def test_both_ends_are_progress(db: Connection, percent: int) -> None:
    lease = await given.claimed(db)

    await progress(db, lease, percent=percent)

    assert (await given.row(db, lease.execution_id))["progress_pct"] == percent


@pytest.mark.parametrize("percent", [-1, 101, 2**40])
async def test_a_percentage_is_0_to_100(db: Connection, percent: int) -> None:
    lease = await given.claimed(db)
    before = await given.everything(db)

    with pytest.raises(ValidationError, match="percent"):
        await progress(db, lease, percent=percent)

    assert await given.everything(db) == before


async def test_a_message_is_made_storable(db: Connection) -> None:
    lease = await given.claimed(db)

    await progress(db, lease, message="a\x00b\ud800c" + "ä" * 20_000)

    message = (await given.row(db, lease.execution_id))["progress_message"]
    assert message.startswith("a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}")
    assert len(message.encode()) <= 16 * 1024
