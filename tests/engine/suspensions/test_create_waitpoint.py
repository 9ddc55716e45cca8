"""A waitpoint made ahead: by the holder of the lease only, with a token of its own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.suspensions.create_waitpoint import create_waitpoint
from flowfabric.engine.suspensions.expire_pending_waitpoints import expire_pending_waitpoints
from flowfabric.errors import (
    ExecutionNotActive,
    LeaseExpired,
    NotFound,
    StaleLease,
    ValidationError,
    WaitpointAlreadyExists,
)
from flowfabric.ids import ExecutionId
from flowfabric.states import JournalKind, WaitpointState
from flowfabric.testing import Clock
from flowfabric.tokens import sign_token
from tests import given
from tests.engine.journal.journals import entry
from tests.engine.keys.test_rotate_waitpoint_hmac_secret_all import rotate
from tests.engine.suspensions.given_suspended import SECRET, leased, pending, waitpoint_row


async def test_a_waitpoint_is_pending_with_a_token_and_the_lease_is_kept(
    db: Connection, clock: Clock
) -> None:
    lease = await leased(db)
    before = await given.row(db, lease.execution_id)

    waitpoint = await pending(db, lease, "approve", expires_in=60)

    row = await waitpoint_row(db, waitpoint)
    assert (row["state"], row["waitpoint_key"], row["attempt_index"]) == ("pending", "approve", 0)
    assert (row["signals"], row["signal_count"], row["required_signal_names"]) == ([], 0, [])
    assert (row["activated_at_ms"], row["suspension_id"], row["token_kid"]) == (None, None, "k1")
    now = await clock.now()
    assert waitpoint.state is WaitpointState.PENDING
    assert (waitpoint.created_at, waitpoint.expires_at) == (now, now + timedelta(seconds=60))
    signed = sign_token("k1", bytes.fromhex(SECRET), lease.execution_id, waitpoint.waitpoint_id)
    assert waitpoint.token == signed
    assert await given.row(db, lease.execution_id) == before


async def test_two_calls_with_one_key_make_two_waitpoints(db: Connection) -> None:
    lease = await leased(db)

    one, two = await pending(db, lease), await pending(db, lease)

    assert one.waitpoint_key == two.waitpoint_key
    assert one.waitpoint_id != two.waitpoint_id
    assert one.token != two.token


async def test_a_call_that_is_repeated_with_its_id_answers_the_same_waitpoint(
    db: Connection, clock: Clock
) -> None:
    lease, fresh = await leased(db), uuid4()
    first = await create_waitpoint(db, lease, "a", expires_in=60, waitpoint_id=fresh)
    await rotate(db, "k2", "b2" * 32, grace=3600)
    await clock.advance(5)
    before = await given.everything(db)

    again = await create_waitpoint(db, lease, "a", expires_in=900, waitpoint_id=fresh)

    assert again == first
    assert again.token.reveal().startswith("k1:"), "the token that was handed out stays valid"
    assert await given.everything(db) == before


async def test_a_repeated_call_answers_the_waitpoint_also_when_it_is_closed(
    db: Connection, clock: Clock
) -> None:
    lease, fresh = await leased(db, ttl=600), uuid4()
    await create_waitpoint(db, lease, "a", expires_in=1, waitpoint_id=fresh)
    await clock.advance(1)
    await expire_pending_waitpoints(db, 10)

    again = await create_waitpoint(db, lease, "a", expires_in=900, waitpoint_id=fresh)

    assert (again.state, again.close_reason) == (WaitpointState.CLOSED, "never_committed")


async def test_an_id_that_another_waitpoint_has_is_refused(db: Connection) -> None:
    lease = await leased(db)
    other = await given.created(db)
    taken = (await pending(db, lease, "a")).waitpoint_id
    await db.execute(  # a waitpoint of another execution in the same partition
        "INSERT INTO ff.waitpoint_pending (partition_key, attempt_index, waitpoint_id,"
        " execution_id, created_at_ms, waitpoint_key, token_kid, token)"
        " VALUES ($1, 0, $2, $3, 0, 'a', 'k1', '')",
        lease.execution_id.partition_key,
        foreign := uuid4(),
        other.uuid,
    )
    before = await given.everything(db)

    for waitpoint_id, key in ((taken, "b"), (foreign, "a")):
        with pytest.raises(WaitpointAlreadyExists) as refused:
            await create_waitpoint(db, lease, key, expires_in=60, waitpoint_id=waitpoint_id)
        assert refused.value.waitpoint_id == waitpoint_id

    assert await given.everything(db) == before


REFUSED = (NotFound, ExecutionNotActive, StaleLease, LeaseExpired)


async def refused(db: Connection, lease: Lease) -> Exception:
    """Why no waitpoint is made; nothing is written."""
    before = await given.everything(db)
    recorded = entry(lease, 1, kind=JournalKind.WAITPOINT)
    with pytest.raises(REFUSED) as error:
        await create_waitpoint(db, lease, "a", expires_in=60)
    with pytest.raises(type(error.value)):
        await create_waitpoint(db, lease, "a", expires_in=60, entry=recorded)
    assert await given.everything(db) == before
    return error.value


async def test_only_the_holder_of_the_lease_makes_one(db: Connection, clock: Clock) -> None:
    lease = await leased(db)
    nobody = msgspec.structs.replace(lease, execution_id=ExecutionId.mint())
    stale = msgspec.structs.replace(lease, lease_epoch=7)

    assert isinstance(await refused(db, nobody), NotFound)
    assert isinstance(await refused(db, stale), StaleLease)
    await clock.advance(30)
    assert isinstance(await refused(db, lease), LeaseExpired)


async def test_an_execution_that_does_not_run_makes_none(db: Connection) -> None:
    ended = await leased(db)
    await complete(db, [Completion(ended)])
    assert isinstance(await refused(db, ended), ExecutionNotActive)

    lease = await given.claimed(db)
    await release(db, [lease])
    assert isinstance(await refused(db, lease), ExecutionNotActive)


async def test_without_a_key_none_is_made(db: Connection) -> None:
    lease = await given.claimed(db)

    with pytest.raises(ValidationError, match="keystore empty") as error:
        await create_waitpoint(db, lease, "a", expires_in=60)

    assert error.value.code == "invalid_input"


async def test_an_entry_under_another_lease_is_refused(db: Connection) -> None:
    lease = await leased(db)
    other = entry(await given.claimed(db), 1, "door", kind=JournalKind.WAITPOINT)
    before = await given.everything(db)

    with pytest.raises(ValidationError, match="entry 'door' must have the lease of the waitpoint"):
        await create_waitpoint(db, lease, "a", expires_in=60, entry=other)

    assert await given.everything(db) == before


BAD: list[tuple[dict[str, Any], str]] = [
    ({"waitpoint_key": ""}, "waitpoint_key '' must not be empty"),
    ({"waitpoint_key": "x" * 257}, "waitpoint_key 'x+…' must be at most 256 bytes"),
    ({"waitpoint_key": "a\x00"}, "waitpoint_key .* must not contain a NUL"),
    ({"waitpoint_key": 7}, "waitpoint_key 7 must be a text"),
    ({"expires_in": -1}, "expires_in -1 must not be negative"),
    ({"expires_in": "soon"}, "expires_in 'soon' must be a number"),
    (
        {"expires_in": 1e12},
        "expires_in 1000000000000.0 must be a number of seconds within a century",
    ),
    ({"waitpoint_id": "a"}, "waitpoint_id 'a' must be of type UUID"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
async def test_a_bad_argument_is_named_and_nothing_is_written(
    db: Connection, arguments: dict[str, Any], message: str
) -> None:
    lease = await leased(db)
    before = await given.everything(db)

    with pytest.raises(ValidationError, match=message):
        await create_waitpoint(db, lease, **{"waitpoint_key": "a", "expires_in": 60.0, **arguments})

    assert await given.everything(db) == before


async def test_what_shows_a_waitpoint_hides_its_token(db: Connection) -> None:
    waitpoint = await pending(db, await leased(db))

    assert waitpoint.token.reveal().partition(":")[2] not in repr(waitpoint)
    assert "k1:<REDACTED:len=64>" in repr(waitpoint)
    with pytest.raises(TypeError):
        msgspec.json.encode(waitpoint)
