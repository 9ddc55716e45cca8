"""Settings: where the database is, and how connections to it behave."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec

from flowfabric.errors import ConfigError
from flowfabric.ids import NUM_FLOW_PARTITIONS

DATABASE_URL: Final = "FF_DATABASE_URL"
DIRECT_URL: Final = "FF_DIRECT_URL"
DATABASE_POOLER: Final = "FF_DATABASE_POOLER"
SERVER_URL: Final = "FF_SERVER_URL"
TOKEN: Final = "FF_TOKEN"  # noqa: S105  the name of a variable
CALLBACK_URL: Final = "FF_CALLBACK_URL"
ACTIVITY: Final = "FF_ACTIVITY"
MAX_STREAM_OPS: Final = "FF_MAX_CONCURRENT_STREAM_OPS"
SCHEMES: Final = ("postgresql", "postgres")

_TIMEOUTS: Final = (
    "connect_timeout",
    "statement_timeout",
    "lock_timeout",
    "idle_transaction_timeout",
)
_MAX_COUNT: Final = 2**31 - 1
_LONGEST: Final = 2_000_000
"""Postgres counts the milliseconds of a timeout in 31 bits."""
_YES: Final = ("1", "true", "yes", "on")
_NO: Final = ("", "0", "false", "no", "off")
_USERINFO: Final = re.compile(r"((?:^|//)[^/@:?#\s]*:)[^/?#\s]+@")
_PASSWORD: Final = re.compile(r"(?<=password=)('[^']*'|[^&\s]*)", re.IGNORECASE)


def behind_pooler(given: bool | None = None) -> bool:
    """The given answer, else that of `FF_DATABASE_POOLER`, else no; raises `ConfigError`."""
    if given is not None:
        return _check_flag("pooler", given)
    said = os.environ.get(DATABASE_POOLER, "").strip().lower()
    if said in _YES:
        return True
    if said in _NO:
        return False
    raise ConfigError("database", DATABASE_POOLER, f"{said!r} is neither 1 nor 0")


def is_server_url(text: object) -> bool:
    """Is this the address of a server, and not of a database?"""
    return isinstance(text, str) and text.startswith(("http://", "https://"))


def max_stream_ops() -> int:
    """How many streams are read at once, as `FF_MAX_CONCURRENT_STREAM_OPS` says, else 64."""
    said = os.environ.get(MAX_STREAM_OPS, "").strip() or "64"
    if not (said.isascii() and said.isdigit() and 1 <= int(said) <= _MAX_COUNT):
        raise ConfigError("database", MAX_STREAM_OPS, f"{said!r} is not a whole number from 1")
    return int(said)


def callback_url() -> str | None:
    """Where outsiders reach the server, as `FF_CALLBACK_URL` says; None if it says nothing.

    Raises `ConfigError` for what is no address.
    """
    said = os.environ.get(CALLBACK_URL, "").strip().rstrip("/")
    if not said:
        return None
    parts = urlsplit(said)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        why = f"{said!r} must be an address of the server, such as https://ff.example.org"
        raise ConfigError("worker", CALLBACK_URL, why)
    return said


def _check_flag(field: str, given: object) -> bool:
    if type(given) is not bool:
        raise ConfigError("database", field, f"{given!r} must be True or False")
    return given


class PartitionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of logical partitions; the same in every process of a deployment."""

    num_flow_partitions: int = NUM_FLOW_PARTITIONS
    num_budget_partitions: int = 32
    num_quota_partitions: int = 32


class DatabaseConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One database and the limits of every connection to it.

    `pooler=True` is for a pooler in transaction mode: statements are not prepared, session settings
    are not sent, and waiters poll, because LISTEN does not work there. Its default is what
    `FF_DATABASE_POOLER` says. Timeouts are in seconds. Raises `ConfigError` for a setting that is
    not valid.
    """

    dsn: str
    pool_size: int = 4
    pooler: bool = msgspec.field(default_factory=behind_pooler)
    direct_dsn: str | None = None
    """Leads to the same database past the pooler, for renewals and LISTEN; needs `pooler`."""
    listen: bool = True
    connect_timeout: float = 10.0
    statement_timeout: float = 30.0
    lock_timeout: float = 10.0
    idle_transaction_timeout: float = 10.0
    """Postgres ends a transaction that is idle for longer, and so releases its locks."""
    max_stream_ops: int = msgspec.field(default_factory=max_stream_ops)
    """How many `read_stream` and `tail_stream` run at once in a process."""
    partitions: PartitionConfig = PartitionConfig()

    def __post_init__(self) -> None:
        check_dsn(self.dsn, variable="dsn")
        if self.direct_dsn is not None:
            check_dsn(self.direct_dsn, variable="direct_dsn")
        for field in ("pool_size", "max_stream_ops"):
            count: object = getattr(self, field)
            if type(count) is not int or count < 1:
                why = f"{count!r} must be a whole number of at least 1"
                raise ConfigError("database", field, why)
        _check_flag("pooler", self.pooler)
        _check_flag("listen", self.listen)
        for field in _TIMEOUTS:
            given: object = getattr(self, field)
            seconds = given.total_seconds() if isinstance(given, timedelta) else given
            if isinstance(seconds, bool) or not isinstance(seconds, int | float):
                why = f"{given!r} must be a number of seconds or a timedelta"
                raise ConfigError("database", field, why)
            if not 0.001 <= seconds <= _LONGEST:
                why = f"{given!r} must be from a millisecond to {_LONGEST} seconds"
                raise ConfigError("database", field, why)
            msgspec.structs.force_setattr(self, field, float(seconds))
        if not _is_partitions(self.partitions):
            raise ConfigError("database", "partitions", "must be a PartitionConfig")

    def direct(self) -> DatabaseConfig:
        """This database past its pooler, if there is a DSN for that; else as it is."""
        if not self.pooler or self.direct_dsn is None:
            return self
        return msgspec.structs.replace(self, dsn=self.direct_dsn, direct_dsn=None, pooler=False)

    def __repr__(self) -> str:
        return f"DatabaseConfig(dsn={redact(self.dsn)!r}, pool_size={self.pool_size})"


def _is_partitions(given: object) -> bool:
    return isinstance(given, PartitionConfig)


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
    return None if dsn is None else check_dsn(dsn, variable=DIRECT_URL)


def check_dsn(dsn: str, *, variable: str = DATABASE_URL) -> str:
    """The DSN, if it is a Postgres URL; else raises `ConfigError`.

    The error does not quote the DSN, which may contain a password.
    """
    if not isinstance(cast("object", dsn), str):
        why = f"is a {type(dsn).__name__}; write a text such as postgresql://user@host/name"
        raise ConfigError("database", variable, why)
    try:
        scheme = urlsplit(dsn).scheme
    except ValueError as error:
        raise ConfigError("database", variable, f"is not a URL: {error}") from None
    if scheme not in SCHEMES:
        shown = f"{scheme}://…" if "://" in dsn else "the value"
        why = f"{shown} is not a postgresql:// URL; write postgresql://user@host/name"
        raise ConfigError("database", variable, why)
    return dsn


def activity_is_on() -> bool:
    """Are completions counted for charts? Not with `FF_ACTIVITY=0`."""
    return os.environ.get(ACTIVITY, "1") != "0"


def redact(dsn: str) -> str:
    """The DSN with `***` for the password, in the user part and in the query."""
    return _PASSWORD.sub("***", _USERINFO.sub(r"\1***@", dsn))
