"""A failed token leaves the time of its failure on the waitpoint, and nothing else."""

from __future__ import annotations

from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.errors import InvalidToken
from flowfabric.testing import Clock
from tests.engine.suspensions.given_suspended import leased, pending, waitpoint_row


async def test_the_time_of_a_failed_token_is_noted_in_a_transaction_of_its_own(
    ff_engine: Engine, db: Connection, clock: Clock
) -> None:
    waitpoint = await pending(db, await leased(db))
    arguments = (waitpoint.execution_id, waitpoint.waitpoint_id)

    for token in ("", "nonsense", f"k1:{'0' * 64}"):
        await clock.advance(1)
        with pytest.raises(InvalidToken):
            await ff_engine.deliver_signal(*arguments, token, "go")
        row = await waitpoint_row(db, waitpoint)
        assert row["last_hmac_validation_failed_at_ms"] == await clock.now_ms()
        assert (row["signals"], row["signal_count"]) == ([], 0)

    [listed] = (await ff_engine.list_open_waitpoints()).waitpoints
    assert listed.last_hmac_validation_failed_at == await clock.now()


async def test_a_flood_of_failures_is_noted_once_a_second(
    ff_engine: Engine, db: Connection, clock: Clock
) -> None:
    waitpoint = await pending(db, await leased(db))
    for _ in range(3):
        with pytest.raises(InvalidToken):
            await ff_engine.deliver_signal(
                waitpoint.execution_id, waitpoint.waitpoint_id, token="x", signal_name="go"
            )
        noted = (await waitpoint_row(db, waitpoint))["last_hmac_validation_failed_at_ms"]
        await clock.advance(0.3)

    assert noted == await clock.now_ms() - 900


async def test_a_failure_is_an_invalid_token_also_if_it_cannot_be_noted(
    ff_engine: Engine, db: Connection
) -> None:
    waitpoint = await pending(db, await leased(db))

    with pytest.raises(InvalidToken):
        await ff_engine.deliver_signal(waitpoint.execution_id, uuid4(), waitpoint.token, "go")
    async with db.transaction():  # the row is in use
        await db.execute("SELECT FROM ff.waitpoint_pending FOR UPDATE")
        with pytest.raises(InvalidToken):
            await ff_engine.deliver_signal(
                waitpoint.execution_id, waitpoint.waitpoint_id, "x", "go"
            )

    assert (await waitpoint_row(db, waitpoint))["last_hmac_validation_failed_at_ms"] is None


async def test_a_stranger_locks_nothing(db: Connection, ff_engine: Engine) -> None:
    waitpoint = await pending(db, await leased(db))
    async with db.transaction():
        await db.execute("SELECT FROM ff.exec_core FOR UPDATE")
        with pytest.raises(InvalidToken):
            await ff_engine.deliver_signal(
                waitpoint.execution_id, waitpoint.waitpoint_id, "x", "go"
            )
