"""Leases that have run out and were not taken back yet."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.list_expired_leases import (
    ExpiredLease,
    ExpiredLeaseCursor,
    list_expired_leases,
)
from flowfabric.engine.lifecycle.claim import Claimant, claim
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.engine.operators.revoke_lease import LeaseRevoked, revoke_lease
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import NO_DATABASE, RUNNABLE, TERMINAL, execution


async def listed(db: Connection, **fields: Any) -> list[ExecutionId]:
    """The executions of one page, in order."""
    page = await list_expired_leases(db, **fields)
    return [lease.execution_id for lease in page.leases]


async def test_a_lease_that_ran_out_is_listed_with_what_is_known_of_it(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db, ttl=30)
    runs_out = await clock.now() + timedelta(seconds=30)
    await clock.advance(60)

    page = await list_expired_leases(db)

    assert page.leases == [
        ExpiredLease(
            execution_id=lease.execution_id,
            lease_id=lease.lease_id,
            lease_epoch=lease.lease_epoch,
            worker_instance_id="w-1",
            expires_at=runs_out,
            attempt_index=0,
        )
    ]
    assert page.next_cursor is None


async def test_a_lease_is_listed_from_the_very_instant(db: Connection, clock: Clock) -> None:
    await given.claimed(db, ttl=30)
    await clock.advance(29.999)
    assert await listed(db) == []
    await clock.advance(0.001)

    assert len(await listed(db)) == 1


async def test_the_caller_may_look_ahead_or_back(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=30)
    now = await clock.now()

    assert await listed(db, as_of=now + timedelta(seconds=29.999)) == []
    assert await listed(db, as_of=now + timedelta(seconds=30)) == [lease.execution_id]


async def test_a_renewed_lease_is_not_listed(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=30)
    await clock.advance(29)
    await renew(db, [lease], ttl=30)
    await clock.advance(29)

    assert await listed(db) == []


@pytest.mark.parametrize("state", [*RUNNABLE, *TERMINAL])
async def test_what_nobody_holds_is_not_listed(db: Connection, clock: Clock, state: str) -> None:
    await execution(db, state)
    await clock.advance(3600)

    assert await listed(db) == []


async def test_what_was_taken_back_is_not_listed(db: Connection, clock: Clock) -> None:
    await given.claimed(db, ttl=30)
    await clock.advance(30)
    await expire_leases(db, limit=10)

    assert await listed(db) == []


async def test_the_longest_expired_come_first(db: Connection, clock: Clock) -> None:
    by_ttl = {ttl: (await given.claimed(db, ttl=ttl)).execution_id for ttl in (30, 10, 20)}
    await clock.advance(60)

    assert await listed(db) == [by_ttl[10], by_ttl[20], by_ttl[30]]


async def expired_together(db: Connection, clock: Clock) -> list[ExecutionId]:
    """Seven leases of one expiry over scattered partitions, in the order of their uuids."""
    for number, partition in enumerate((200, 7, 100, 3, 250, 50, 1), 1):
        await given.created(db, execution_id=ExecutionId(partition, UUID(int=number)))
    tasks = await claim(db, given.WORKER, ttl=30, limit=10)
    await clock.advance(30)
    return sorted((task.lease.execution_id for task in tasks), key=lambda each: each.uuid)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
async def test_pages_over_equal_expiries_neither_skip_nor_repeat(
    db: Connection, clock: Clock, limit: int
) -> None:
    expected = await expired_together(db, clock)
    found: list[ExecutionId] = []
    page = await list_expired_leases(db, limit=limit)
    found += [lease.execution_id for lease in page.leases]
    while page.next_cursor is not None:
        assert len(page.leases) == limit
        page = await list_expired_leases(db, after=page.next_cursor, limit=limit)
        found += [lease.execution_id for lease in page.leases]

    assert found == expected


async def test_a_page_has_a_cursor_if_another_one_follows(db: Connection, clock: Clock) -> None:
    await expired_together(db, clock)

    page = await list_expired_leases(db, limit=6)

    assert page.next_cursor == ExpiredLeaseCursor(
        expires_at=await clock.now(), execution_id=page.leases[-1].execution_id
    )
    rest = await list_expired_leases(db, after=page.next_cursor, limit=1)
    assert (len(rest.leases), rest.next_cursor) == (1, None)


async def test_only_the_namespace_that_was_named_is_listed(db: Connection, clock: Clock) -> None:
    await given.claimed(db, ttl=30)
    await given.created(db, namespace="acme")
    acme = Claimant(worker_id="w", worker_instance_id="w-1", lanes=("default",), namespace="acme")
    [task] = await claim(db, acme, ttl=30)
    await clock.advance(30)

    assert await listed(db, namespace="acme") == [task.lease.execution_id]
    assert len(await listed(db)) == 2
    assert await listed(db, namespace="other") == []


async def test_its_id_is_the_one_that_a_revocation_takes(db: Connection, clock: Clock) -> None:
    await given.claimed(db, ttl=30)
    await clock.advance(30)
    [expired] = (await list_expired_leases(db)).leases

    answer = await revoke_lease(
        db, expired.execution_id, reason="gone", expected_lease_id=expired.lease_id
    )

    assert isinstance(answer, LeaseRevoked)
    assert answer.lease_id == expired.lease_id


@pytest.mark.parametrize("limit", [-1, 0, 10_001])
async def test_a_page_holds_1_to_10000(limit: int) -> None:
    with pytest.raises(ValidationError, match="limit") as raised:
        await list_expired_leases(NO_DATABASE, limit=limit)

    assert raised.value.code == "invalid_input"


async def test_the_largest_page_is_taken(db: Connection) -> None:
    assert await listed(db, limit=10_000) == []


async def test_a_moment_without_a_time_zone_is_refused_before_any_sql() -> None:
    with pytest.raises(ValidationError, match="as_of"):
        await list_expired_leases(NO_DATABASE, as_of=datetime(2026, 1, 1))


async def test_reading_takes_nothing_back(db: Connection, clock: Clock, ff_engine: Engine) -> None:
    lease = await given.claimed(db, ttl=30)
    await clock.advance(30)
    before = await given.everything(db)

    page = await ff_engine.list_expired_leases(limit=1)

    assert [expired.execution_id for expired in page.leases] == [lease.execution_id]
    assert await given.everything(db) == before
