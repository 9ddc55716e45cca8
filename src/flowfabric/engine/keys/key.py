"""A signing key: the checks of its id and secret, and its signature; the secret is never shown."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Any, Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.errors import ValidationError

_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})+")
_MAX_KID: Final = 256

ACTIVE_KEY: Final[LiteralString] = """
-- keys.active_key
SELECT kid, secret FROM ff.waitpoint_hmac WHERE active
"""

VERIFYING_KEY: Final[LiteralString] = """
-- keys.verifying_key
SELECT kid, secret FROM ff.waitpoint_hmac
 WHERE kid = %(kid)s AND (active OR expires_at_ms >= ff.now_ms())
"""

KNOWN_KEY: Final[LiteralString] = """
-- keys.known_key
SELECT kid, secret, active OR expires_at_ms >= ff.now_ms() AS verifies
  FROM ff.waitpoint_hmac WHERE kid = %(kid)s
"""


class Key(msgspec.Struct, frozen=True):
    """A secret and its id; the repr shows only the id."""

    kid: str
    secret: bytes

    def sign(self, message: str) -> str:
        """HMAC-SHA256 over `kid:message`, as lower-case hex digits."""
        return hmac.new(self.secret, f"{self.kid}:{message}".encode(), hashlib.sha256).hexdigest()

    def __repr__(self) -> str:
        return f"Key(kid={self.kid!r}, secret=<REDACTED>)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("kid", self.kid), ("secret", "<REDACTED>")]


class KnownKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key, and whether its signatures are still valid: it is active or within its grace."""

    key: Key
    verifies: bool


class _Row(msgspec.Struct, frozen=True):
    kid: str
    secret: bytes
    verifies: bool


async def active_key(conn: Connection) -> Key | None:
    """The key that signs; None if there is none."""
    return await fetch_maybe(conn, ACTIVE_KEY, Key)


async def verifying_key(conn: Connection, kid: str) -> Key | None:
    """The key of that id, if its signatures are still valid: it is active or within its grace."""
    return await fetch_maybe(conn, VERIFYING_KEY, Key, kid=kid)


async def known_key(conn: Connection, kid: str) -> KnownKey | None:
    """The key of that id, also if its grace is over; None if it was never known, or is deleted."""
    row = await fetch_maybe(conn, KNOWN_KEY, _Row, kid=kid)
    return None if row is None else KnownKey(key=Key(row.kid, row.secret), verifies=row.verifies)


def check_kid(kid: str) -> str:
    """The id, if it can be part of a signed text; raises `ValidationError(invalid_kid)`.

    The error does not show the text, which may be a key written as `kid:secret`.
    """
    if not kid:
        raise ValidationError("invalid_kid", "kid must not be empty")
    if ":" in kid:
        raise ValidationError("invalid_kid", "kid must not hold a colon")
    if not kid.isprintable() or len(kid.encode()) > _MAX_KID:
        raise ValidationError("invalid_kid", f"kid must be at most {_MAX_KID} printable bytes")
    return kid


def check_secret(secret_hex: str, *, digits: int | None = None) -> bytes:
    """The bytes of the secret; raises `ValidationError(invalid_secret_hex)`, which hides it."""
    if _HEX.fullmatch(secret_hex) is None or len(secret_hex) != (digits or len(secret_hex)):
        wanted = "an even number of" if digits is None else digits
        raise ValidationError("invalid_secret_hex", f"the secret must be {wanted} hex digits")
    return bytes.fromhex(secret_hex)
