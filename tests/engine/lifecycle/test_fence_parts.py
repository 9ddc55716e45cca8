"""Each part of the fence counts by itself: two right ones and a wrong one are no lease."""

from uuid import UUID

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.errors import NotFound, StaleLease
from flowfabric.policy import FixedBackoff
from tests import given
from tests.engine.lifecycle.fenced import Operation, each

WRONG = {
    "an earlier attempt": {"attempt_index": 0},
    "a later attempt": {"attempt_index": 2},
    "an earlier epoch": {"lease_epoch": 1},
    "a later epoch": {"lease_epoch": 3},
    "another lease": {"lease_id": UUID(int=7)},
}


@each
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_a_lease_that_is_wrong_in_one_part_writes_nothing(
    db: Connection, operation: Operation, wrong: dict[str, object]
) -> None:
    policy = given.retrying(9, backoff=FixedBackoff(delay=0))
    first = await given.claimed(db, policy=policy)
    await fail(db, [Failure(lease=first, reason="again")])
    [held] = await claim(db, given.WORKER, ttl=30)
    assert (held.lease.attempt_index, held.lease.lease_epoch) == (1, 2)
    before = await given.everything(db)

    [answer] = await operation(db, [msgspec.structs.replace(held.lease, **wrong)])

    assert isinstance(answer, StaleLease | NotFound)
    assert await given.everything(db) == before
