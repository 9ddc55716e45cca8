"""Tokens of waitpoints: `kid:digest`, signed over the execution and the waitpoint; never shown."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final, NamedTuple
from uuid import UUID

from flowfabric.errors import InvalidToken, MissingToken
from flowfabric.ids import ExecutionId

_DIGEST: Final = re.compile("[0-9a-f]{64}")
_FINGERPRINT: Final = 16
_MAX_KID: Final = 256


class WaitpointToken:
    """The right to signal one waitpoint. Texts of it are redacted; `reveal` gives the token."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if not _is_text(text):
            raise InvalidToken
        self._text = text

    def reveal(self) -> str:
        """The token itself, for its holder; it must not be logged."""
        return self._text

    @property
    def fingerprint(self) -> str | None:
        """The first digits of the digest, by which people compare tokens; None if malformed."""
        parts = _split(self._text)
        return None if parts is None else parts.digest.hex()[:_FINGERPRINT]

    def __repr__(self) -> str:
        parts = _split(self._text)
        return "<REDACTED:malformed>" if parts is None else f"{parts.kid}:<REDACTED:len=64>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WaitpointToken):
            return NotImplemented
        return is_same_text(self._text, other._text)

    def __hash__(self) -> int:
        return hash(self._text)


class TokenParts(NamedTuple):
    """The id of the key that signed, and the digest."""

    kid: str
    digest: bytes

    def __repr__(self) -> str:
        return f"TokenParts(kid={self.kid!r}, digest=<REDACTED>)"


def parse_token(token: object) -> TokenParts:
    """The parts of a token; raises `MissingToken` if it is None or empty, else `InvalidToken`."""
    text = _text(token)
    if not text:
        raise MissingToken
    parts = _split(text)
    if parts is None:
        raise InvalidToken
    return parts


def sign_token(
    kid: str, secret: bytes, execution_id: ExecutionId, waitpoint_id: UUID
) -> WaitpointToken:
    """The token of that waitpoint; the same arguments give the same token."""
    digest = _digest(kid, secret, execution_id, waitpoint_id)
    return WaitpointToken(f"{kid}:{digest.hex()}")


def verify_token(
    secret: bytes,
    token: WaitpointToken | str,
    execution_id: ExecutionId,
    waitpoint_id: UUID,
    *,
    stored: WaitpointToken | None = None,
) -> None:
    """The key with this secret signed the token for that waitpoint, and it is the stored one.

    For bridges that hold the secret of the key that `parse_token` names. Compares in constant time.
    Raises `MissingToken`, or `InvalidToken`, which does not say how the token differs.
    """
    parts = parse_token(token)
    signed = _digest(parts.kid, secret, execution_id, waitpoint_id)
    is_signed = hmac.compare_digest(signed, parts.digest)
    is_stored = stored is None or is_same_text(stored.reveal(), _text(token) or "")
    if not (is_signed and is_stored):
        raise InvalidToken


def is_same_text(one: str, other: str) -> bool:
    """Are the two secret texts equal? Compared in constant time."""
    return hmac.compare_digest(
        one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass")
    )


def _text(token: object) -> str | None:
    """The text of a token; None if there is none. Raises `InvalidToken` for what is no text."""
    if token is None or isinstance(token, str):
        return token
    if not isinstance(token, WaitpointToken):
        raise InvalidToken
    return token.reveal()


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _split(text: str) -> TokenParts | None:
    """The parts of a well-formed token, which a key can have signed."""
    kid, _, digits = text.partition(":")
    if _DIGEST.fullmatch(digits) is None or not kid or not kid.isprintable():
        return None
    return TokenParts(kid, bytes.fromhex(digits)) if len(kid.encode()) <= _MAX_KID else None


def _digest(kid: str, secret: bytes, execution_id: ExecutionId, waitpoint_id: UUID) -> bytes:
    message = f"{kid}:{execution_id}:{waitpoint_id}"
    return hmac.new(secret, message.encode(), hashlib.sha256).digest()
