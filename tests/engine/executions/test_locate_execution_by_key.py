"""An execution is found by its idempotency key, as long as it is kept."""

from __future__ import annotations

from datetime import timedelta

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.locate_execution_by_key import locate_execution_by_key
from flowfabric.errors import ValidationError
from flowfabric.testing import Clock
from tests import given


async def test_the_execution_of_a_key(db: Connection) -> None:
    execution_id = await given.created(db, idempotency_key="order-7")

    assert await locate_execution_by_key(db, "default", "order-7") == execution_id
    assert await locate_execution_by_key(db, "default", "order-8") is None
    assert await locate_execution_by_key(db, "other", "order-7") is None


async def test_it_is_found_after_the_window_of_its_key_until_another_has_the_key(
    db: Connection, clock: Clock
) -> None:
    first = await given.created(db, idempotency_key="order-7")
    await clock.advance(timedelta(days=3))

    later = await locate_execution_by_key(db, "default", "order-7")
    second = await given.created(db, idempotency_key="order-7")

    assert (later, first == second) == (first, False)
    assert await locate_execution_by_key(db, "default", "order-7") == second


@pytest.mark.parametrize("key", ["", "x" * 1025, "a\x00b"])
async def test_a_key_that_cannot_be_is_refused(db: Connection, key: str) -> None:
    with pytest.raises(ValidationError, match="idempotency_key"):
        await locate_execution_by_key(db, "default", key)
