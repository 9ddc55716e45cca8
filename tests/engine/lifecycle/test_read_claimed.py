"""What a claim got, asked for by its lease id."""

from typing import cast
from uuid import uuid4

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.read_claimed import read_claimed
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.lifecycle.sql.lease import Claimed
from flowfabric.policy import ExecutionPolicy, TimeoutPolicy
from flowfabric.testing import Clock
from tests import given
from tests.explained import Explained

FIELDS = tuple(field.name for field in msgspec.structs.fields(Claimed))


async def test_it_answers_what_the_claim_answered(db: Connection, clock: Clock) -> None:
    timeout = ExecutionPolicy(timeout_policy=TimeoutPolicy(attempt_timeout=60))
    for number in range(3):
        await given.created(
            db, priority=number, tags={"a.n": f"{number}"}, input_payload=b"1", policy=timeout
        )
    lease_id = uuid4()
    await release(db, [each.lease for each in await claim(db, given.WORKER, ttl=30, limit=1)])
    claimed = await claim(db, given.WORKER, ttl=30, limit=2, lease_id=lease_id)
    assert [each.kind for each in claimed] == ["resumed", "fresh"]
    await claim(db, given.WORKER, ttl=30, limit=2)

    found = await read_claimed(db, [lease_id], worker_instance_id="w-1")

    assert [[getattr(each, name) for name in FIELDS] for each in found] == [
        [getattr(each, name) for name in FIELDS] for each in claimed
    ]
    assert [each.lease.lease_id for each in found] == [lease_id] * 2


async def test_it_says_how_long_the_lease_lasts(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=30)
    await clock.advance(12)

    [found] = await read_claimed(db, [lease.lease_id], worker_instance_id="w-1")

    assert found.lease_expires_in == 18


async def test_leases_of_several_claims_are_asked_for_at_once(db: Connection) -> None:
    leases = [await given.claimed(db) for _ in range(3)]

    found = await read_claimed(
        db, [leases[0].lease_id, leases[2].lease_id, uuid4()], worker_instance_id="w-1"
    )

    assert {each.lease for each in found} == {leases[0], leases[2]}


async def test_only_what_the_process_still_holds_is_found(db: Connection, clock: Clock) -> None:
    ended, released, expired = [await given.claimed(db, ttl=60 - 20 * n) for n in range(3)]
    await complete(db, [Completion(ended, None)])
    await release(db, [released])
    await clock.advance(21)
    [others] = await claim(db, given.OTHER, ttl=60)

    ids = [each.lease_id for each in (ended, released, expired, others.lease)]
    assert await read_claimed(db, ids, worker_instance_id="w-1") == []


@pytest.mark.usefixtures("new_database")
async def test_asking_costs_as_much_as_is_active_whatever_is_queued(
    db: Connection, ff_engine: Engine
) -> None:
    await ff_engine.create_execution([given.new() for _ in range(1000)])
    await ff_engine.create_execution([given.new() for _ in range(1000)])
    lease_id = uuid4()
    await claim(db, given.WORKER, ttl=30, limit=2, lease_id=lease_id)
    await db.execute("ANALYZE ff.exec_core, ff.exec_body, ff.route")

    for generic in (False, True):
        explained = Explained(db, generic=generic)
        found = await read_claimed(
            cast("Connection", explained), [lease_id], worker_instance_id="w-1"
        )
        assert len(found) == 2
        assert explained.costs[0].buffers <= 40
