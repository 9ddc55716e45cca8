"""Settings of the server: from its options, else from the environment."""

from __future__ import annotations

import functools
import os
from typing import Final

import msgspec

from flowfabric.errors import ConfigError

LISTEN: Final = "FF_LISTEN"
API_TOKEN: Final = "FF_API_TOKEN"  # noqa: S105  the name of a variable
ALLOWED_HOSTS: Final = "FF_ALLOWED_HOSTS"
CORS_ORIGINS: Final = "FF_CORS_ORIGINS"
METRICS_TOKEN: Final = "FF_METRICS_TOKEN"  # noqa: S105  the name of a variable
DOCS: Final = "FF_DOCS"
CALLBACKS: Final = "FF_CALLBACKS"
SHUTDOWN_GRACE: Final = "FF_SHUTDOWN_GRACE"
DRAIN_DELAY: Final = "FF_DRAIN_DELAY"
TRUSTED_PROXIES: Final = "FF_TRUSTED_PROXIES"
DEFAULT_LISTEN: Final = "127.0.0.1:9090"
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_OFF: Final = ("0", "false", "no", "off")


def _listed(variable: str) -> tuple[str, ...]:
    parts = (part.strip() for part in os.environ.get(variable, "").split(","))
    return tuple(part for part in parts if part)


def _flag(variable: str, *, default: bool) -> bool:
    said = os.environ.get(variable, "").strip().lower()
    return default if not said else said not in _OFF


def _seconds(variable: str, default: float) -> float:
    said = os.environ.get(variable, "").strip()
    try:
        found = float(said) if said else default
    except ValueError:
        found = -1.0
    if not 0 <= found <= 3600:
        raise ConfigError("server", variable, f"{said!r} is not a number of seconds to 3600")
    return found


@functools.lru_cache(maxsize=16)  # every request compares its host
def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ConfigError("server", LISTEN, f"{listen!r} is not HOST:PORT")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104  as written


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a server listens, and whom it lets in. Raises `ConfigError` for an invalid setting."""

    listen: str = msgspec.field(default_factory=lambda: os.environ.get(LISTEN) or DEFAULT_LISTEN)
    api_tokens: tuple[str, ...] = msgspec.field(default_factory=lambda: _listed(API_TOKEN))
    """Tokens of admins, beside those that are stored."""
    allowed_hosts: tuple[str, ...] = msgspec.field(default_factory=lambda: _listed(ALLOWED_HOSTS))
    cors_origins: tuple[str, ...] = msgspec.field(default_factory=lambda: _listed(CORS_ORIGINS))
    metrics_token: str | None = msgspec.field(
        default_factory=lambda: os.environ.get(METRICS_TOKEN) or None
    )
    docs: bool = msgspec.field(default_factory=lambda: _flag(DOCS, default=True))
    callbacks: bool = msgspec.field(default_factory=lambda: _flag(CALLBACKS, default=False))
    shutdown_grace: float = msgspec.field(default_factory=lambda: _seconds(SHUTDOWN_GRACE, 15.0))
    drain_delay: float = msgspec.field(default_factory=lambda: _seconds(DRAIN_DELAY, 0.0))
    trusted_proxies: tuple[str, ...] = msgspec.field(
        default_factory=lambda: _listed(TRUSTED_PROXIES)
    )
    insecure: bool = False
    """Serve without tokens, also on an address that others reach."""

    def __post_init__(self) -> None:
        self.address()
        if CORS_ORIGINS in os.environ and not self.cors_origins:
            raise ConfigError("server", CORS_ORIGINS, "is empty; unset it, or name the origins")
        for origin in self.cors_origins:
            if not origin.startswith(("http://", "https://")) or "*" in origin:
                raise ConfigError("server", CORS_ORIGINS, f"{origin!r} is not an origin")

    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        return _address(self.listen)

    @property
    def is_local(self) -> bool:
        """Can only this machine connect?"""
        return self.address()[0] in _LOOPBACK

    def __repr__(self) -> str:
        return f"Settings(listen={self.listen!r})"
