"""Which signals are refused, in which order, and what a stranger learns from it: nothing."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from flowfabric.conditions import Single
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.suspensions.close_waitpoint import close_waitpoint
from flowfabric.engine.suspensions.deliver_signal import deliver_signal
from flowfabric.engine.suspensions.expire_pending_waitpoints import expire_pending_waitpoints
from flowfabric.engine.suspensions.signal_answers import SignalDuplicate
from flowfabric.engine.suspensions.waitpoint import Waitpoint
from flowfabric.errors import (
    EngineError,
    InvalidToken,
    MissingToken,
    NotFound,
    TargetNotSignalable,
    TokenExpired,
    ValidationError,
    WaitpointClosed,
)
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy
from flowfabric.testing import Clock
from flowfabric.tokens import sign_token
from tests import given
from tests.engine.keys.test_rotate_waitpoint_hmac_secret_all import rotate
from tests.engine.suspensions.given_suspended import (
    SECRET,
    accepted,
    deliver,
    leased,
    pending,
    suspended,
    waitpoint_row,
)

B = "b2" * 32
TOO_LARGE = b"x" * 65_537


async def refused(db: Connection, waitpoint: Waitpoint, **changed: Any) -> Exception:
    """Why the signal is refused; nothing is written."""
    arguments: dict[str, Any] = {
        "execution_id": waitpoint.execution_id,
        "waitpoint_id": waitpoint.waitpoint_id,
        "token": waitpoint.token,
        "signal_name": "go",
        **changed,
    }
    before = await given.everything(db)
    with pytest.raises(EngineError) as error:
        async with db.transaction():
            await deliver_signal(db, **arguments)
    assert await given.everything(db) == before
    return error.value


# The token.


async def test_no_token_is_missing(db: Connection) -> None:
    waitpoint = await pending(db, await leased(db))

    for nothing in ("", None):
        error = await refused(db, waitpoint, token=nothing)
        assert isinstance(error, MissingToken)
        assert error.code == "missing_token"


def forged(waitpoint: Waitpoint) -> dict[str, Any]:
    """Tokens that look right and are not."""
    kid, _, digest = waitpoint.token.reveal().partition(":")
    execution_id, secret = waitpoint.execution_id, bytes.fromhex(SECRET)
    last = f"{int(digest[-1], 16) ^ 1:x}"
    return {
        "bit flipped": f"{kid}:{digest[:-1]}{last}",
        "cut": f"{kid}:{digest[:-1]}",
        "longer": f"{kid}:{digest}0",
        "upper case": f"{kid}:{digest.upper()}",
        "no kid": f":{digest}",
        "digest alone": digest,
        "kid alone": f"{kid}:",
        "unknown kid": f"k9:{digest}",
        "signed under an unknown kid": sign_token(
            "k9", secret, execution_id, waitpoint.waitpoint_id
        ),
        "signed by another secret": sign_token(
            kid, bytes.fromhex(B), execution_id, waitpoint.waitpoint_id
        ),
        "of another waitpoint": sign_token(kid, secret, execution_id, uuid4()),
        "of another execution": sign_token(kid, secret, ExecutionId.mint(), waitpoint.waitpoint_id),
        "unicode": f"{kid}:{'é' * 64}",
        "unicode digits": f"{kid}:{'٣' * 64}",
        "spaces": f" {waitpoint.token.reveal()} ",
        "zero byte": f"{kid}\x00:{digest}",
        "lone surrogate": f"{kid}\ud800:{digest}",
        "bytes": waitpoint.token.reveal().encode(),
        "a number": 7,
    }


async def test_a_forged_token_is_invalid_and_the_error_does_not_say_how(db: Connection) -> None:
    waitpoint = await pending(db, await leased(db))

    for what, token in forged(waitpoint).items():
        error = await refused(db, waitpoint, token=token)
        assert type(error) is InvalidToken, what
        assert error.code == "invalid_token"
        assert str(error) == str(InvalidToken()), what


async def test_the_token_of_another_waitpoint_opens_neither(db: Connection) -> None:
    lease = await leased(db)
    one, two = await pending(db, lease, "a"), await pending(db, lease, "b")

    assert isinstance(await refused(db, one, token=two.token), InvalidToken)
    assert isinstance(await refused(db, two, token=one.token), InvalidToken)


async def test_a_token_is_good_for_its_own_execution_only(db: Connection) -> None:
    waitpoint = await pending(db, await leased(db))
    other = await given.created(db)

    error = await refused(db, waitpoint, execution_id=other)

    assert type(error) is InvalidToken


async def test_a_waitpoint_that_does_not_exist_is_an_invalid_token(db: Connection) -> None:
    waitpoint = await pending(db, await leased(db))
    nowhere = uuid4()
    signed = sign_token("k1", bytes.fromhex(SECRET), waitpoint.execution_id, nowhere)

    for token in (signed, waitpoint.token):
        assert type(await refused(db, waitpoint, waitpoint_id=nowhere, token=token)) is InvalidToken


async def test_a_token_that_is_signed_but_is_not_the_stored_one_is_invalid(db: Connection) -> None:
    waitpoint = await pending(db, await leased(db))
    await rotate(db, "k2", B, grace=3600)
    signed_anew = sign_token("k2", bytes.fromhex(B), waitpoint.execution_id, waitpoint.waitpoint_id)

    assert type(await refused(db, waitpoint, token=signed_anew)) is InvalidToken
    await accepted(db, waitpoint)


async def test_a_token_is_good_until_the_grace_of_its_key_is_over(
    db: Connection, clock: Clock
) -> None:
    waitpoint = await pending(db, await leased(db))
    await rotate(db, "k2", B, grace=10)
    await accepted(db, waitpoint)
    await clock.advance(10)
    await accepted(db, waitpoint)
    await clock.advance(0.001)

    error = await refused(db, waitpoint)

    assert isinstance(error, TokenExpired)
    assert (error.code, isinstance(error, InvalidToken)) == ("token_expired", True)


async def test_two_rotations_within_the_grace_leave_the_first_key_valid(db: Connection) -> None:
    waitpoint = await pending(db, await leased(db))
    await rotate(db, "k2", B, grace=3600)
    await rotate(db, "k3", "c3" * 32, grace=3600)

    await accepted(db, waitpoint)


async def test_a_key_that_was_deleted_after_its_grace_is_unknown(
    db: Connection, clock: Clock
) -> None:
    waitpoint = await pending(db, await leased(db))
    await rotate(db, "k2", B, grace=10)
    await clock.advance(11)
    await rotate(db, "k3", "c3" * 32, grace=10)  # collects k1

    assert type(await refused(db, waitpoint)) is InvalidToken


# The order.


async def test_an_execution_that_does_not_exist_is_named_first(db: Connection) -> None:
    waitpoint = await pending(db, await leased(db))

    error = await refused(db, waitpoint, execution_id=ExecutionId.mint(), token="")

    assert isinstance(error, NotFound)
    assert error.code == "execution_not_found"


async def test_without_a_valid_token_every_state_answers_alike(
    db: Connection, clock: Clock
) -> None:
    """No state oracle: the token comes before anything that it would reveal."""
    open_ = await pending(db, await leased(db))
    expired = await pending(db, await given.claimed(db, ttl=900), expires_in=1)
    closed = await pending(db, await given.claimed(db, ttl=900))
    async with db.transaction():
        await close_waitpoint(db, closed.execution_id, closed.waitpoint_id)
    active = (await suspended(db, Single("a"))).waitpoints["a"]
    ended_lease = await given.claimed(db)
    ended = await pending(db, ended_lease)
    await complete(db, [Completion(ended_lease)])
    await clock.advance(1)
    await rotate(db, "k2", B, grace=0)
    await clock.advance(0.001)
    everything = (open_, expired, closed, active, ended)

    for token, code in (
        ("", "missing_token"),
        ("nonsense", "invalid_token"),
        (f"k1:{'0' * 64}", "token_expired"),
        (f"k2:{'0' * 64}", "invalid_token"),
        (f"k9:{'0' * 64}", "invalid_token"),
    ):
        errors = [await refused(db, each, token=token, payload=TOO_LARGE) for each in everything]
        errors.append(await refused(db, open_, waitpoint_id=uuid4(), token=token))
        assert {str(error) for error in errors} == {str(errors[0])}
        assert {getattr(error, "code", None) for error in errors} == {code}


async def test_an_execution_that_has_ended_takes_no_signals(db: Connection) -> None:
    held = await suspended(db, Single("a"))
    async with db.transaction():
        await cancel_execution(db, held.execution_id, reason="no")
    assert (await waitpoint_row(db, held.waitpoints["a"]))["state"] == "closed"

    error = await refused(db, held.waitpoints["a"], payload=TOO_LARGE)

    assert isinstance(error, TargetNotSignalable)
    assert (error.code, error.public_state) == ("target_not_signalable", "cancelled")


async def test_a_late_signal_meets_a_closed_waitpoint(db: Connection) -> None:
    held = await suspended(db, Single("a"))
    await accepted(db, held.waitpoints["a"])

    error = await refused(db, held.waitpoints["a"], payload=TOO_LARGE)

    assert isinstance(error, WaitpointClosed)
    assert error.waitpoint_id == held.waitpoint_id("a")


@pytest.mark.parametrize("swept", [False, True])
async def test_a_pending_waitpoint_that_has_expired_is_closed(
    db: Connection, clock: Clock, swept: bool
) -> None:
    waitpoint = await pending(db, await leased(db, ttl=900), expires_in=10)
    await clock.advance(9.999)
    await accepted(db, waitpoint)
    await clock.advance(0.001)
    if swept:
        await expire_pending_waitpoints(db, 10)

    assert isinstance(await refused(db, waitpoint), WaitpointClosed)


async def test_a_payload_has_at_most_64_kib(db: Connection) -> None:
    waitpoint = await pending(db, await leased(db))

    error = await refused(db, waitpoint, payload=TOO_LARGE, max_signals_per_execution=1)

    assert isinstance(error, ValidationError)
    assert (error.code, error.field) == ("payload_too_large", "payload")
    assert "65537" in error.detail
    await accepted(db, waitpoint, payload=TOO_LARGE[:-1])


async def test_an_execution_takes_so_many_signals_on_all_its_waitpoints(db: Connection) -> None:
    lease = await leased(db)
    one, two = await pending(db, lease, "a"), await pending(db, lease, "b")
    await accepted(db, one, max_signals_per_execution=2, signal_maxlen=1)
    await accepted(db, one, max_signals_per_execution=2, signal_maxlen=1, idempotency_key="k")

    error = await refused(db, two, max_signals_per_execution=2)
    repeated = await refused(db, one, max_signals_per_execution=2, idempotency_key="k")

    for each in (error, repeated):
        assert isinstance(each, ValidationError)
        assert each.code == "signal_limit_exceeded"
        assert "has had 2 signals of at most 2" in each.detail
    assert isinstance(
        await deliver(db, one, max_signals_per_execution=3, idempotency_key="k"), SignalDuplicate
    )
    await accepted(db, two, max_signals_per_execution=0)


async def test_the_policy_of_the_execution_says_how_many(db: Connection) -> None:
    lease = await leased(db, policy=ExecutionPolicy(max_signals_per_execution=1))
    waitpoint = await pending(db, lease)
    await accepted(db, waitpoint)

    error = await refused(db, waitpoint)

    assert getattr(error, "code", None) == "signal_limit_exceeded"
    await accepted(db, waitpoint, max_signals_per_execution=0)
    without_limit = await pending(
        db, await given.claimed(db, policy=ExecutionPolicy(max_signals_per_execution=0))
    )
    await accepted(db, without_limit)


async def test_signals_that_were_sent_by_name_count_too(db: Connection) -> None:
    waitpoint = await pending(db, await leased(db))
    await db.execute("UPDATE ff.exec_core SET signal_seq = 2")

    error = await refused(db, waitpoint, max_signals_per_execution=2)

    assert getattr(error, "code", None) == "signal_limit_exceeded"


# Arguments.

BAD: list[tuple[dict[str, Any], str]] = [
    ({"signal_name": ""}, "signal_name '' must not be empty"),
    ({"signal_name": "x" * 129}, "signal_name 'x+…' must be at most 128 bytes"),
    ({"signal_name": "a\n"}, "signal_name 'a..' must not contain control"),
    ({"signal_name": "a\x00"}, "signal_name .* must not contain a NUL"),
    ({"signal_name": None}, "signal_name must be a text, not NoneType"),
    ({"signal_id": "a"}, "signal_id 'a' must be of type UUID"),
    ({"waitpoint_id": "a"}, "waitpoint_id 'a' must be of type UUID"),
    ({"signal_category": ""}, "signal_category '' must not be empty"),
    ({"source_type": ""}, "source_type '' must not be empty"),
    ({"source_identity": "x" * 1025}, "source_identity 'x+…' must be at most 1024 bytes"),
    ({"correlation_id": "\ud800"}, "correlation_id .* must not contain a lone surrogate"),
    ({"idempotency_key": "x" * 1025}, "idempotency_key 'x+…' must be at most 1024 bytes"),
    ({"idempotency_key": 7}, "idempotency_key 7 must be a text"),
    ({"payload": "text"}, "payload 'str' must be bytes"),
    ({"encoding": ""}, "encoding '' must not be empty"),
    ({"dedup_ttl": "long"}, "dedup_ttl 'long' must be a number"),
    ({"resume_delay": -1}, "resume_delay -1 must not be negative"),
    ({"max_signals_per_execution": -1}, "max_signals_per_execution -1 must be a whole number"),
    ({"max_signals_per_execution": 1.5}, "max_signals_per_execution 1.5 must be a whole number"),
    ({"signal_maxlen": 0}, "signal_maxlen 0 must be a whole number of at least 1"),
    ({"signal_maxlen": True}, "signal_maxlen True must be a whole number"),
]


@pytest.mark.parametrize(("changed", "message"), BAD)
async def test_a_bad_argument_is_named_before_anything_else(
    db: Connection, changed: dict[str, Any], message: str
) -> None:
    waitpoint = await pending(db, await leased(db))

    with pytest.raises(ValidationError, match=message):
        raise await refused(db, waitpoint, **{"token": "", **changed})
