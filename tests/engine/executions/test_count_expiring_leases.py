"""Leases that expire soon, on what a worker could run."""

from datetime import timedelta

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.count_expiring_leases import count_expiring_leases
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.testing import Clock
from tests import given


async def test_leases_that_expire_within_the_time_are_counted(db: Connection, clock: Clock) -> None:
    for ttl in (10, 30, 31):
        await given.claimed(db, ttl=ttl)

    answer = await count_expiring_leases(db, given.OTHER, within=30)

    assert answer.leases == 2
    assert answer.until == await clock.now() + timedelta(seconds=30)


async def test_a_renewed_lease_is_not_counted_again_and_an_expired_one_is(
    db: Connection, clock: Clock
) -> None:
    renewed, _expired = await given.claimed(db, ttl=30), await given.claimed(db, ttl=30)
    first = await count_expiring_leases(db, given.OTHER, within=30)
    await clock.advance(10)
    await renew(db, [renewed], ttl=30)
    await clock.advance(21)

    again = await count_expiring_leases(db, given.OTHER, within=30, until=first.until)

    assert (first.leases, again.leases, again.until) == (2, 1, first.until)


async def test_what_the_worker_cannot_run_is_not_counted(db: Connection) -> None:
    await given.created(db, lane_id="default", required_capabilities=("gpu",))
    able = msgspec.structs.replace(given.WORKER, capabilities=("gpu",))
    assert len(await claim(db, able, ttl=10)) == 1

    for claimant, leases in (
        (given.OTHER, 0),
        (able, 1),
        (msgspec.structs.replace(able, kinds=("job",)), 1),
        (msgspec.structs.replace(able, kinds=("another",)), 0),
        (msgspec.structs.replace(able, lanes=("another",)), 0),
        (msgspec.structs.replace(able, namespace="another"), 0),
    ):
        assert (await count_expiring_leases(db, claimant, within=30)).leases == leases
