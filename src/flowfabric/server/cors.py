"""Cross-origin access: none, unless `FF_CORS_ORIGINS` lists the origin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flowfabric.server.settings import Settings

_METHODS: Final = "GET, POST, PUT, PATCH, DELETE"
_HEADERS: Final = (
    "authorization, content-type, idempotency-key, if-match, if-none-match, last-event-id, "
    "traceparent, x-request-id"
)
_EXPOSED: Final = "etag, link, location, retry-after, x-request-id, x-ff-encoding, x-ff-version"


def cors_headers(headers: Mapping[bytes, bytes], settings: Settings) -> dict[str, str]:
    """The headers that let a listed origin read the answer."""
    origin = headers.get(b"origin", b"").decode("latin-1")
    if not origin or origin not in settings.cors_origins:
        return {}
    return {
        "access-control-allow-origin": origin,
        "access-control-allow-methods": _METHODS,
        "access-control-allow-headers": _HEADERS,
        "access-control-expose-headers": _EXPOSED,
        "vary": "origin",
    }


def is_preflight(headers: Mapping[bytes, bytes], settings: Settings) -> bool:
    """Does a browser ask by OPTIONS what a page of a listed origin may send?"""
    asks = b"access-control-request-method" in headers
    return asks and headers.get(b"origin", b"").decode("latin-1") in settings.cors_origins
