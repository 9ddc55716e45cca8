"""Another key signs from now on; the old one verifies until its grace is over."""

from __future__ import annotations

import hmac
from datetime import timedelta
from typing import Final, LiteralString

import msgspec

from flowfabric.audit import audit_now
from flowfabric.db.rows import Connection, execute, fetch_maybe, fetch_one
from flowfabric.engine.keys.key import check_kid, check_secret
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.errors import RotationConflict
from flowfabric.policy import grace_milliseconds
from flowfabric.states import OperatorEventType

# Readers are not blocked. The second of two rotations waits, and sees the result of the first.
LOCK_KEYS: Final[LiteralString] = """
-- keys.rotate_waitpoint_hmac_secret_all: one at a time
LOCK TABLE ff.waitpoint_hmac IN SHARE ROW EXCLUSIVE MODE
"""

KNOWN: Final[LiteralString] = """
-- keys.rotate_waitpoint_hmac_secret_all: the key that is stored under the new id
SELECT secret, active FROM ff.waitpoint_hmac WHERE kid = %(kid)s
"""

# 253402300799999 is the last millisecond of the year 9999, the greatest that datetime has.
ROTATE: Final[LiteralString] = """
-- keys.rotate_waitpoint_hmac_secret_all
WITH deleted AS (     -- keys whose grace is over
    DELETE FROM ff.waitpoint_hmac WHERE expires_at_ms < ff.now_ms() RETURNING 1
), retired AS (
    UPDATE ff.waitpoint_hmac
       SET active = false,
           expires_at_ms = least(ff.now_ms() + %(grace_ms)s::bigint, 253402300799999)
     WHERE active RETURNING kid
), stored AS (        -- reads `retired`: only one key may be active at a time
    INSERT INTO ff.waitpoint_hmac (kid, secret, rotated_at_ms, active)
    SELECT %(kid)s, %(secret)s, ff.now_ms(), true FROM (SELECT count(*) FROM retired) AS first
)
SELECT (SELECT kid FROM retired) AS previous_kid, (SELECT count(*) FROM deleted) AS gc_count
"""


class KeyRotated(msgspec.Struct, frozen=True, kw_only=True):
    """`new_kid` signs; `gc_count` keys whose grace was over were deleted."""

    previous_kid: str | None
    new_kid: str
    gc_count: int


class KeyUnchanged(msgspec.Struct, frozen=True, kw_only=True):
    """This key signs already; nothing was written."""

    kid: str


class PartitionRotation(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one store of keys; a Postgres database is one store."""

    partition: int
    result: KeyRotated | KeyUnchanged


class _Known(msgspec.Struct, frozen=True):
    secret: bytes
    active: bool


class _Done(msgspec.Struct, frozen=True):
    previous_kid: str | None
    gc_count: int


def _conflict(kid: str, why: str, actor: str) -> RotationConflict:
    audit_now("waitpoint_hmac_rotation_failed", actor=actor, new_kid=kid, error=why)
    return RotationConflict(kid, why)


async def rotate_waitpoint_hmac_secret_all(
    conn: Connection,
    new_kid: str,
    new_secret_hex: str,
    grace: float | timedelta,
    *,
    actor: str = DEFAULT_ACTOR,
) -> list[PartitionRotation]:
    """The new key signs, and the old one verifies for another `grace`; needs a transaction.

    A rotation writes an operator event. Raises `ValidationError`: `invalid_kid`,
    `invalid_secret_hex`, `invalid_grace_ms` (not 0 to 2^53-1 milliseconds); and `RotationConflict`
    if the id belongs to another secret or to a retired key.
    """
    check_actor(actor)
    check_kid(new_kid)
    secret = check_secret(new_secret_hex)
    grace_ms = grace_milliseconds(grace)
    await execute(conn, LOCK_KEYS)
    known = await fetch_maybe(conn, KNOWN, _Known, kid=new_kid)
    if known is not None:
        if not hmac.compare_digest(known.secret, secret):
            raise _conflict(new_kid, "belongs to another secret", actor)
        if not known.active:
            raise _conflict(new_kid, "was retired", actor)
        return [PartitionRotation(partition=0, result=KeyUnchanged(kid=new_kid))]
    done = await fetch_one(conn, ROTATE, _Done, kid=new_kid, secret=secret, grace_ms=grace_ms)
    result = KeyRotated(previous_kid=done.previous_kid, new_kid=new_kid, gc_count=done.gc_count)
    await operator_event(
        conn,
        OperatorEventType.KEY_ROTATED,
        actor=actor,
        reason=None,
        old_kid=result.previous_kid,
        new_kid=result.new_kid,
        grace_ms=grace_ms,
    )
    return [PartitionRotation(partition=0, result=result)]
