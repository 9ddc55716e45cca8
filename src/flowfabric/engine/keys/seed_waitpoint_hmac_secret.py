"""The first key: every process that boots passes it, and the first process stores it."""

from __future__ import annotations

import hmac
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, Moved, fetch_maybe, fetch_one
from flowfabric.engine.keys.key import Key, check_kid, check_secret
from flowfabric.errors import ValidationError

DIGITS: Final = 64

# A second insert waits for the first at either unique index, and then inserts nothing.
SEED: Final[LiteralString] = """
-- keys.seed_waitpoint_hmac_secret
WITH seeded AS (
    INSERT INTO ff.waitpoint_hmac (kid, secret, rotated_at_ms, active)
    VALUES (%(kid)s, %(secret)s, ff.now_ms(), true)
        ON CONFLICT DO NOTHING
 RETURNING 1
)
SELECT count(*) AS moved FROM seeded
"""

KNOWN: Final[LiteralString] = """
-- keys.seed_waitpoint_hmac_secret: the key that is stored under the id
SELECT kid, secret FROM ff.waitpoint_hmac WHERE kid = %(kid)s
"""


class KeySeeded(msgspec.Struct, frozen=True, kw_only=True):
    """The key is stored and signs from now on."""

    kid: str


class KeyAlreadySeeded(msgspec.Struct, frozen=True, kw_only=True):
    """A key of that id exists, active or retired; nothing was written."""

    kid: str
    same_secret: bool


async def seed_waitpoint_hmac_secret(
    conn: Connection, kid: str, secret_hex: str
) -> KeySeeded | KeyAlreadySeeded:
    """The key signs, if no key existed; a key of the same id stays as it is.

    Raises `ValidationError`: `invalid_secret_hex` (not 64 hex digits), `invalid_kid` (empty, or
    with a colon), `invalid_input` if a key of another id signs: that one must be rotated.
    """
    secret = check_secret(secret_hex, digits=DIGITS)
    check_kid(kid)
    stored = await fetch_one(conn, SEED, Moved, kid=kid, secret=secret)
    if stored.moved:
        return KeySeeded(kid=kid)
    known = await fetch_maybe(conn, KNOWN, Key, kid=kid)
    if known is None:
        raise ValidationError(
            "invalid_input", f"kid {kid!r} cannot be seeded: another key signs; rotate it"
        )
    return KeyAlreadySeeded(kid=kid, same_secret=hmac.compare_digest(known.secret, secret))
