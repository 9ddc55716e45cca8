"""Settings: where the database is, and how connections to it behave."""

from __future__ import annotations

import os
import re
from typing import Final
from urllib.parse import urlsplit

import msgspec

from flowfabric.errors import ConfigError
from flowfabric.ids import NUM_FLOW_PARTITIONS

DATABASE_URL: Final = "FF_DATABASE_URL"
SCHEMES: Final = ("postgresql", "postgres")

_USERINFO: Final = re.compile(r"((?:^|//)[^/@:?#\s]*:)[^/?#\s]+@")
_PASSWORD: Final = re.compile(r"(?<=password=)('[^']*'|[^&\s]*)", re.IGNORECASE)


class PartitionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How many logical partitions each family has; the same in every process of a deployment."""

    num_flow_partitions: int = NUM_FLOW_PARTITIONS
    num_budget_partitions: int = 32
    num_quota_partitions: int = 32


class DatabaseConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One database and the limits of every connection to it.

    `pooler=True` is for a pooler in transaction mode: no prepared statements, no session settings,
    no LISTEN; waiters poll.
    """

    dsn: str
    pool_size: int = 4
    pooler: bool = False
    listen: bool = True
    connect_timeout: float = 10.0
    statement_timeout: float = 30.0
    lock_timeout: float = 10.0
    idle_transaction_timeout: float = 10.0
    """A process that freezes inside a transaction holds up others for no longer than this."""
    partitions: PartitionConfig = PartitionConfig()

    def __repr__(self) -> str:
        return f"DatabaseConfig(dsn={redact(self.dsn)!r}, pool_size={self.pool_size})"


def database_url(given: str | None = None) -> str | None:
    """The DSN given, else that of the environment, else None."""
    dsn = given or os.environ.get(DATABASE_URL) or None
    return None if dsn is None else check_dsn(dsn)


def require_database_url(given: str | None = None) -> str:
    """The DSN given or of the environment; raises `ConfigError` where there is none."""
    dsn = database_url(given)
    if dsn is None:
        raise ConfigError(
            "database", DATABASE_URL, "not set; give a DSN such as postgresql://user@host/name"
        )
    return dsn


def check_dsn(dsn: str) -> str:
    """The DSN, if it is a Postgres URL; a complaint never repeats what may hold a password."""
    try:
        scheme = urlsplit(dsn).scheme
    except ValueError as error:
        raise ConfigError("database", DATABASE_URL, f"is not a URL: {error}") from None
    if scheme not in SCHEMES:
        shown = f"{scheme}://…" if "://" in dsn else "what was given"
        raise ConfigError("database", DATABASE_URL, f"{shown} is not a postgresql:// URL")
    return dsn


def redact(dsn: str) -> str:
    """The DSN without its password, wherever it stands."""
    return _PASSWORD.sub("***", _USERINFO.sub(r"\1***@", dsn))
