"""The grants of one execution."""

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.stored_grant import (
    GrantTerms,
    StoredGrant,
    delete_grants,
    latest_grant,
    store_grant,
)
from flowfabric.engine.keys.key import Key
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.ids import ExecutionId
from flowfabric.states import GrantKind
from flowfabric.testing import Clock
from tests import given
from tests.engine.grants import granted
from tests.engine.grants.granted import TERMS, unchanged

KEY = Key("k1", b"secret")
TO_W = GrantTerms(**TERMS)
TO_X = msgspec.structs.replace(TO_W, worker_id="x")
EXECUTION, OTHER = ExecutionId.mint(), ExecutionId.mint()


@pytest.fixture(autouse=True)
async def executions(db: Connection, clock: Clock) -> None:
    await create_execution(db, [given.new(execution_id=each) for each in (EXECUTION, OTHER)])


async def store(db: Connection, clock: Clock, kind: GrantKind, terms: GrantTerms) -> bool:
    return await stored(db, clock, EXECUTION, kind, terms)


async def stored(
    db: Connection, clock: Clock, execution_id: ExecutionId, kind: GrantKind, terms: GrantTerms
) -> bool:
    now_ms = await clock.now_ms()
    grant = await store_grant(db, KEY, kind, execution_id, terms, now_ms=now_ms, lease_epoch=0)
    return grant is not None


@pytest.mark.parametrize("first", GrantKind)
@pytest.mark.parametrize("second", GrantKind)
async def test_while_a_grant_runs_no_other_is_stored(
    db: Connection, clock: Clock, first: GrantKind, second: GrantKind
) -> None:
    assert await store(db, clock, first, TO_W)

    async with unchanged(db):
        assert not await store(db, clock, second, TO_X)
        assert not await store(db, clock, second, TO_W)
        await clock.advance(9.999)
        assert not await store(db, clock, second, TO_X)
    await clock.advance(0.001)

    assert await store(db, clock, second, TO_X)


async def test_the_latest_grant_is_the_one_that_counts(db: Connection, clock: Clock) -> None:
    assert await latest_grant(db, EXECUTION) is None
    await store(db, clock, GrantKind.CLAIM, TO_W)
    assert await latest_grant(db, EXECUTION) == StoredGrant("claim", "w")
    await clock.advance(10)
    assert await latest_grant(db, EXECUTION) == StoredGrant("claim", "w", expired=True)
    await store(db, clock, GrantKind.RECLAIM, TO_X)

    assert await latest_grant(db, EXECUTION) == StoredGrant("reclaim", "x")
    assert await latest_grant(db, EXECUTION, GrantKind.RECLAIM) == StoredGrant("reclaim", "x")
    assert await latest_grant(db, EXECUTION, GrantKind.CLAIM) == StoredGrant(
        "claim", "w", expired=True
    )
    assert await latest_grant(db, OTHER) is None


async def test_forgetting_takes_all_of_one_execution(db: Connection, clock: Clock) -> None:
    for terms in (TO_W, TO_X):
        await store(db, clock, GrantKind.CLAIM, terms)
        await clock.advance(10)
    await stored(db, clock, OTHER, GrantKind.CLAIM, TO_W)

    await delete_grants(db, EXECUTION)

    assert [grant["execution_id"] for grant in await granted.grants(db)] == [OTHER.uuid]
