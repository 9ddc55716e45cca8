"""Hosts and origins: a page in a browser must not drive a server on the same machine."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from flowfabric.server.problems import RequestProblem
from flowfabric.server.settings import Settings

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""


def check_host(headers: Mapping[bytes, bytes], settings: Settings) -> None:
    """Raise a `RequestProblem` unless the host is one that this server is known by.

    A server that listens on this machine only, and any whose hosts are listed, compares them.
    """
    host = _named(headers.get(b"host", b""))
    if host in _LOOPBACK or host in settings.allowed_hosts:
        return
    if settings.is_local or settings.allowed_hosts:
        raise RequestProblem("misdirected", "the host is not listed in FF_ALLOWED_HOSTS")


def check_origin(headers: Mapping[bytes, bytes], settings: Settings) -> None:
    """Raise a `RequestProblem` for a change that a page of another site asks for.

    It is for methods that are not `SAFE`.
    """
    origin = headers.get(b"origin", b"").decode("latin-1")
    if origin in settings.cors_origins:
        return
    own = headers.get(b"host", b"").decode("latin-1")
    foreign = bool(origin) and not _is_own(origin, own)
    if foreign or headers.get(b"sec-fetch-site") == b"cross-site":
        raise RequestProblem("cross_site", "the origin is not listed in FF_CORS_ORIGINS")


def _is_own(origin: str, host: str) -> bool:
    """Is it the origin of pages of this server? Another port of the same host is another site.

    A host without a port is compared without one: proxies often leave it out.
    """
    try:
        page = urlsplit(origin)
        port = page.port or _PORTS.get(page.scheme)
    except ValueError:
        return False
    own_port = host.rpartition("]")[2].partition(":")[2]
    return page.hostname == hostname(host) and own_port in ("", str(port))


@functools.lru_cache(maxsize=256)  # every request has one, and few are ever given
def _named(header: bytes) -> str:
    return hostname(header.decode("latin-1"))


def hostname(host: str) -> str:
    """The host without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
