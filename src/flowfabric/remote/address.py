"""Where a server is, and with which token it is called."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import urlsplit

import msgspec

from flowfabric.config import TOKEN
from flowfabric.errors import ConfigError

_SCHEMES: Final = ("http", "https")


class ServerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A server, and how long it may take. Raises `ConfigError` for what cannot be an address.

    `ca` is a file with the certificates that sign the server's own. Times are in seconds: to
    connect, to answer, and for how long a request is repeated while the server cannot be reached.
    """

    url: str
    token: str | None = None
    ca: str | None = None
    connect_timeout: float = 5.0
    request_timeout: float = 35.0
    retry_for: float = 5.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in _SCHEMES or not parts.hostname:
            raise ConfigError("server", "url", "must look like http://host:9090")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ConfigError("server", "url", "must not have a user, parameters or a fragment")
        token = os.environ.get(TOKEN) if self.token is None else self.token
        if token is not None and (not token.isascii() or not token.isprintable()):
            raise ConfigError("server", "token", "has characters that no token has")
        if token is not None and not token.strip():
            raise ConfigError("server", "token", "must not be empty")
        msgspec.structs.force_setattr(self, "url", self.url.rstrip("/"))
        msgspec.structs.force_setattr(self, "token", token)

    def __repr__(self) -> str:
        return f"ServerAddress(url={self.url!r})"
