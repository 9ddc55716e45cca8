"""Tokens that forms send back, so that no other site can make a browser change something."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from flowfabric.dashboard.problems import PageProblem

FIELD: Final = "_csrf"
HEADER: Final = b"x-ff-csrf"
_PURPOSE: Final = b"flowfabric dashboard form"
_SIZE: Final = 32


def token(secret: str) -> str:
    """A token for the browser that has this secret in its cookie; another one each time.

    It is masked by random bytes, so that compressed pages tell nothing of it.
    """
    pad = secrets.token_bytes(_SIZE)
    return base64.urlsafe_b64encode(pad + _xor(pad, _mac(secret))).decode()


def is_valid(given: str, secret: str) -> bool:
    """Was the token made for this secret?"""
    try:
        data = base64.urlsafe_b64decode(given.encode("ascii"))
    except (binascii.Error, UnicodeEncodeError, ValueError):
        return False
    if len(data) != 2 * _SIZE:
        return False
    return hmac.compare_digest(_xor(data[:_SIZE], data[_SIZE:]), _mac(secret))


def check(headers: Mapping[bytes, bytes], given: str, secret: str | None, host: str) -> None:
    """Raise a `PageProblem` unless a page of this dashboard sends the request."""
    check_origin(headers, host)
    if secret is None or not is_valid(given, secret):
        raise _refusal()


def check_origin(headers: Mapping[bytes, bytes], host: str, *, needed: bool = True) -> None:
    """Raise a `PageProblem` unless the request comes from a page of the same origin."""
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        own = site == b"same-origin"
    else:
        origin = headers.get(b"origin", b"").decode("latin-1")
        own = bool(origin) and urlsplit(origin).netloc.lower() == host.lower()
    if needed and not own:
        raise _refusal()


def _refusal() -> PageProblem:
    detail = "Nothing was changed. Reload the page and try again."
    title = "The form did not come from this page"
    return PageProblem(403, detail, kind="cross_site_request", title=title)


def _mac(secret: str) -> bytes:
    return hmac.new(secret.encode(), _PURPOSE, hashlib.sha256).digest()


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
