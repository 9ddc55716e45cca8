"""Grants that ran out a while ago are removed."""

from collections.abc import Awaitable, Callable

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.expire_grants import expire_grants
from flowfabric.errors import ClaimGrantExpired, InvalidClaimGrant
from flowfabric.testing import Clock
from tests import given
from tests.engine.grants import granted
from tests.engine.grants.granted import unchanged

Another = Callable[[], Awaitable[Connection]]


@pytest.fixture(autouse=True)
async def key(db: Connection, clock: Clock) -> None:
    await granted.keyed(db)


async def test_a_grant_is_kept_for_a_minute_after_it_ran_out(db: Connection, clock: Clock) -> None:
    execution_id = await given.created(db)
    await granted.claim_granted(db, execution_id, grant_ttl=5)
    await clock.advance(65)
    async with unchanged(db):
        assert await expire_grants(db, limit=10) == 0
    with pytest.raises(ClaimGrantExpired):
        await granted.claim_it(db, execution_id)
    before = await given.row(db, execution_id)
    await clock.advance(0.001)

    assert [await expire_grants(db, limit=10) for _ in range(2)] == [1, 0]

    assert await granted.grants(db) == []
    assert await given.row(db, execution_id) == before
    with pytest.raises(InvalidClaimGrant):
        await granted.claim_it(db, execution_id)


async def test_grants_that_run_are_left_alone(db: Connection, clock: Clock) -> None:
    old, new = await given.created(db), await given.created(db)
    await granted.claim_granted(db, old, grant_ttl=0.001)
    await clock.advance(61)
    await granted.claim_granted(db, new, grant_ttl=0.001)

    assert await expire_grants(db, limit=10) == 1

    assert [grant["execution_id"] for grant in await granted.grants(db)] == [new.uuid]


async def test_one_sweep_takes_no_more_than_its_limit_the_oldest_first(
    db: Connection, clock: Clock
) -> None:
    executions = [await given.created(db) for _ in range(3)]
    for execution_id in executions:
        await granted.claim_granted(db, execution_id)
        await clock.advance(1)
    await clock.advance(100)

    assert await expire_grants(db, limit=2) == 2

    assert [grant["execution_id"] for grant in await granted.grants(db)] == [executions[2].uuid]


async def test_a_grant_in_use_is_passed_over(
    db: Connection, clock: Clock, another: Another
) -> None:
    await granted.claim_granted(db, await given.created(db))
    await clock.advance(100)
    other = await another()
    async with other.transaction():
        await other.execute("SELECT FROM ff.claim_grant FOR UPDATE")
        assert await expire_grants(db, limit=10) == 0

    assert await expire_grants(db, limit=10) == 1
