"""The text of an API token: random, and with a checksum by which typos and leaks are found."""

from __future__ import annotations

import hashlib
import re
import secrets
import zlib
from typing import Final

PREFIX: Final = "ff_"
_FORM: Final = re.compile(r"ff_[A-Za-z0-9_-]{43}[0-9a-z]{6}")
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def new_secret() -> str:
    """`ff_`, 256 random bits, and six characters of their CRC-32."""
    body = PREFIX + secrets.token_urlsafe(32)
    return body + _checksum(body)


def is_well_formed(token: str) -> bool:
    """Has it the form and the checksum of a token? One that has not was never made."""
    return _FORM.fullmatch(token) is not None and token[-6:] == _checksum(token[:-6])


def digest(token: str) -> bytes:
    """What is stored of a token: it is random, so a plain SHA-256 cannot be reversed."""
    return hashlib.sha256(token.encode()).digest()


def _checksum(body: str) -> str:
    left, found = zlib.crc32(body.encode()) % 36**6, ""
    for _ in range(6):
        left, digit = divmod(left, 36)
        found = _DIGITS[digit] + found
    return found
