"""Is a grant what it claims to be? What is forged, and when a key ends, is in `grant_keys`."""

from typing import Any

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.grant import ClaimGrant, GrantKey, ReclaimGrant
from flowfabric.engine.grants.verify_grant import VerifiedGrant, verify_grant
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.errors import InvalidGrant
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.states import GrantKind
from flowfabric.testing import Clock
from tests import given
from tests.engine.grants import granted
from tests.engine.grants.granted import unchanged
from tests.engine.keys.test_rotate_waitpoint_hmac_secret_all import rotate


@pytest.fixture(autouse=True)
async def key(db: Connection, clock: Clock) -> None:
    await granted.keyed(db)


async def fault(db: Connection, grant: ClaimGrant | ReclaimGrant) -> str:
    async with unchanged(db):
        with pytest.raises(InvalidGrant) as refused:
            await verify_grant(db, grant)
    assert grant.grant_key[-64:] not in str(refused.value)
    return refused.value.code


def altered(grant: ClaimGrant, **parts: Any) -> ClaimGrant:
    """The grant with other parts in its key, and fields that say the same."""
    key = msgspec.structs.replace(GrantKey.parse(grant.grant_key), **parts)
    return msgspec.structs.replace(
        grant,
        execution_id=key.execution_id,
        expires_at=instant(key.expires_at_ms),
        grant_key=key.text,
    )


async def test_a_grant_tells_whom_it_was_given_to(db: Connection) -> None:
    grant = await granted.claim_granted(db, await given.created(db))

    async with unchanged(db):
        assert await verify_grant(db, grant) == VerifiedGrant(
            execution_id=grant.execution_id,
            kind=GrantKind.CLAIM,
            worker_id="w",
            worker_instance_id="w-1",
        )


async def test_a_reclaim_grant_is_verified_as_one(db: Connection, clock: Clock) -> None:
    lease = await granted.lost(db, clock)
    grant = await granted.reclaim_granted(db, lease.execution_id)

    assert (await verify_grant(db, grant)).kind is GrantKind.RECLAIM
    posing = {
        name: value for name, value in msgspec.structs.asdict(grant).items() if name != "lane_id"
    }
    assert await fault(db, ClaimGrant(**posing)) == "grant_malformed"


@pytest.mark.parametrize(
    "change",
    [
        {"grant_key": "pg:nonsense"},
        {"expires_at": instant(1)},
        {"execution_id": ExecutionId.mint()},
    ],
    ids=["unreadable", "another time", "another execution"],
)
async def test_a_key_that_cannot_be_is_malformed(db: Connection, change: dict[str, Any]) -> None:
    grant = await granted.claim_granted(db, await given.created(db))

    assert await fault(db, msgspec.structs.replace(grant, **change)) == "grant_malformed"


async def test_a_grant_is_over_when_its_instant_has_come(db: Connection, clock: Clock) -> None:
    grant = await granted.claim_granted(db, await given.created(db), grant_ttl=5)
    await clock.advance(4.999)
    await verify_grant(db, grant)
    await clock.advance(0.001)

    assert await fault(db, grant) == "grant_expired"


async def test_that_it_is_over_is_said_before_anything_about_its_key(
    db: Connection, clock: Clock
) -> None:
    grant = await granted.claim_granted(db, await given.created(db), grant_ttl=5)
    await clock.advance(5)

    assert await fault(db, altered(grant, kid="k9")) == "grant_expired"


async def test_after_a_rotation_the_new_key_signs(db: Connection) -> None:
    await rotate(db, "k2", "aa")

    grant = await granted.claim_granted(db, await given.created(db))

    assert GrantKey.parse(grant.grant_key).kid == "k2"
    await verify_grant(db, grant)


@pytest.mark.parametrize("how", ["claimed", "cancelled"])
async def test_a_grant_that_was_used_up_is_unknown(db: Connection, how: str) -> None:
    grant = await granted.claim_granted(db, await given.created(db))
    if how == "claimed":
        await granted.claim_it(db, grant.execution_id)
    else:
        await cancel_execution(db, grant.execution_id, reason="no")

    assert await fault(db, grant) == "grant_unknown"
