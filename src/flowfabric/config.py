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
DIRECT_URL: Final = "FF_DIRECT_URL"
SCHEMES: Final = ("postgresql", "postgres")

_USERINFO: Final = re.compile(r"((?:^|//)[^/@:?#\s]*:)[^/?#\s]+@")
_PASSWORD: Final = re.compile(r"(?<=password=)('[^']*'|[^&\s]*)", re.IGNORECASE)


class PartitionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of logical partitions; the same in every process of a deployment."""

    num_flow_partitions: int = NUM_FLOW_PARTITIONS
    num_budget_partitions: int = 32
    num_quota_partitions: int = 32


class DatabaseConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One database and the limits of every connection to it.

    `pooler=True` is for a pooler in transaction mode: statements are not prepared, session settings
    are not sent, and waiters poll, because LISTEN does not work there. Timeouts are in seconds.
    """

    dsn: str
    pool_size: int = 4
    pooler: bool = False
    direct_dsn: str | None = None
    """Leads to the same database past the pooler, for renewals and LISTEN; needs `pooler`."""
    listen: bool = True
    connect_timeout: float = 10.0
    statement_timeout: float = 30.0
    lock_timeout: float = 10.0
    idle_transaction_timeout: float = 10.0
    """Postgres ends a transaction that is idle for longer, and so releases its locks."""
    partitions: PartitionConfig = PartitionConfig()

    def direct(self) -> DatabaseConfig:
        """This database past its pooler, if there is a DSN for that; else as it is."""
        if not self.pooler or self.direct_dsn is None:
            return self
        return msgspec.structs.replace(self, dsn=self.direct_dsn, direct_dsn=None, pooler=False)

    def __repr__(self) -> str:
        return f"DatabaseConfig(dsn={redact(self.dsn)!r}, pool_size={self.pool_size})"


def database_url(given: str | None = None) -> str | None:
    """The given DSN, else that of `FF_DATABASE_URL`, else None; raises `ConfigError`."""
    dsn = given or os.environ.get(DATABASE_URL) or None
    return None if dsn is None else check_dsn(dsn)


def require_database_url(given: str | None = None) -> str:
    """The given DSN, else that of `FF_DATABASE_URL`; raises `ConfigError` if there is neither."""
    dsn = database_url(given)
    if dsn is None:
        raise ConfigError(
            "database",
            DATABASE_URL,
            "is not set; set it to a DSN such as postgresql://user@host/name",
        )
    return dsn


def direct_database_url(given: str | None = None) -> str | None:
    """The given DSN past the pooler, else `FF_DIRECT_URL`, else None; raises `ConfigError`."""
    dsn = given or os.environ.get(DIRECT_URL) or None
    return None if dsn is None else check_dsn(dsn)


def check_dsn(dsn: str) -> str:
    """The DSN, if it is a Postgres URL; else raises `ConfigError`.

    The error does not quote the DSN, which may contain a password.
    """
    try:
        scheme = urlsplit(dsn).scheme
    except ValueError as error:
        raise ConfigError("database", DATABASE_URL, f"is not a URL: {error}") from None
    if scheme not in SCHEMES:
        shown = f"{scheme}://…" if "://" in dsn else "the value"
        raise ConfigError("database", DATABASE_URL, f"{shown} is not a postgresql:// URL")
    return dsn


def redact(dsn: str) -> str:
    """The DSN with `***` for the password, in the user part and in the query."""
    return _PASSWORD.sub("***", _USERINFO.sub(r"\1***@", dsn))
