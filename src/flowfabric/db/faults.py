"""Errors of Postgres and its driver as FlowFabric errors, chosen by SQLSTATE."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, cast

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from flowfabric.errors import (
    FlowFabricError,
    InternalError,
    LaneNotAccepting,
    NeedsDatabase,
    OperationTimeout,
    PermissionDenied,
    ResourceExhausted,
    RetryExhausted,
    TransportError,
    Unavailable,
    ValidationError,
)

DRIVER_ERRORS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
"""Everything that the driver raises: the server refused, or the connection broke."""

RETRY: Final = frozenset({"40001", "40P01", "55P03"})
_LOCK_TIMEOUT: Final = "55P03"
_RECONNECT: Final = frozenset({"57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "25P04"})
_EXHAUSTED: Final = {
    "53100": "disk",
    "53200": "memory",
    "53300": "connections",
    "53400": "configuration limit",
}
# Without 55P03 and 57014: waiting too long for a lock, and running too long, are mostly faults of
# the statement.
_TROUBLE: Final = _RECONNECT | {"40001", "40P01"}
_NOT_GRANTED: Final = "42501"
LANE_CLOSED: Final = "FF001"
_CLOSED_LANE: Final = re.compile(r"lane '(.*)' is (draining|disabled)")
_INVALID_TEXT: Final = frozenset({"22021", "22P05"})
_UNDEFINED: Final = frozenset({"3F000", "42P01", "42883", "42703"})


_Connection: TypeAlias = "asyncpg.Connection[Any] | PoolConnectionProxy[Any]"


class SerializationConflict(FlowFabricError):
    """The transaction conflicted with another one and can run again; not raised outside `db`."""

    kind = "transport"
    code = "serialization_conflict"


class LockTimeout(SerializationConflict):
    """A lock was not given in time; the transaction can run again, or pass over what is locked."""


_TROUBLE_ERRORS: Final = (
    TransportError,
    ResourceExhausted,
    OperationTimeout,
    Unavailable,
    RetryExhausted,
    SerializationConflict,
)
_WHEN_LOST: Final = (OSError, TimeoutError, asyncpg.InterfaceError)


@contextmanager
def translated(sql: str, conn: _Connection | None = None) -> Generator[None]:
    """Turn a driver error inside the block into a FlowFabric error with the statement's name.

    An error about rights names the role of `conn`.
    """
    try:
        yield
    except DRIVER_ERRORS as error:
        if getattr(error, "sqlstate", None) == _NOT_GRANTED:
            raise _denied(error, statement_name(sql), conn) from error
        raise as_flowfabric_error(error, statement_name(sql)) from error


def _denied(error: BaseException, operation: str, conn: _Connection | None) -> PermissionDenied:
    """What Postgres refused to which role, and what helps."""
    role = _role_of(conn)
    named = "this role" if role is None else f"role {role!r}"
    refused = str(error)
    if refused.startswith("permission denied for database "):
        database = refused.removeprefix("permission denied for database ")
        helps = f"the owner of the database can grant it: GRANT CREATE ON DATABASE {database} TO …"
    elif refused.startswith("permission denied for schema "):
        helps = "ff migrate --runtime-role … or --read-role …, run by the owner, grants its rights"
    else:
        helps = "a read role may only read; use a runtime role (ff migrate --runtime-role …)"
    return PermissionDenied(operation, f"{named} may not do this: {refused}; {helps}")


def _role_of(conn: _Connection | None) -> str | None:
    """The role that logged in, as the server reports it; None if it does not, as some poolers."""
    try:
        settings = None if conn is None else conn.get_settings()
    except asyncpg.InterfaceError:  # the connection went back to its pool
        return None
    return getattr(settings, "session_authorization", None)


def statement_name(sql: str) -> str:
    """The name in the first line of a statement: `lifecycle.claim` of `-- lifecycle.claim`."""
    first = sql.lstrip().split("\n", 1)[0]
    return first.removeprefix("-- ") if first.startswith("-- ") else "statement"


def described(error: BaseException) -> str:
    """The text of an error, or the name of its type if it has none."""
    return str(error) or type(error).__name__


def as_flowfabric_error(error: BaseException, operation: str) -> FlowFabricError:
    """The FlowFabric error for an error of the driver."""
    if isinstance(error, TimeoutError) and error.errno is None:
        return OperationTimeout(operation)
    if isinstance(error, OSError):
        return TransportError(f"{operation}: {described(error)}")
    state = str(getattr(error, "sqlstate", None) or "")
    message = f"{operation}: {error}"
    if state == _LOCK_TIMEOUT:
        return LockTimeout(message)
    if state in RETRY:
        return SerializationConflict(message)
    if state in _RECONNECT or state.startswith("08"):
        return TransportError(message)
    if state in _EXHAUSTED:
        return ResourceExhausted(_EXHAUSTED[state], str(error))
    if state in _INVALID_TEXT or state in ("22023", "23514"):
        # Without the server's detail, which quotes the whole row and may contain secrets.
        text = str(getattr(error, "message", None) or error)
        return ValidationError("invalid_input", text.removeprefix("invalid_input: "))
    if state == LANE_CLOSED:
        return lane_not_accepting(str(getattr(error, "message", None) or error))
    if state in _UNDEFINED:
        return Unavailable(operation, f"{error}; is the schema migrated? run: ff migrate")
    if state == "57014":
        return OperationTimeout(operation)
    if state == _NOT_GRANTED:
        return _denied(error, operation, None)
    if state.startswith("28") or state == "3D000":  # refused to log in
        return Unavailable(operation, str(error))
    if isinstance(error, asyncpg.DataError):
        return ValidationError("invalid_input", message)
    if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError):
        return TransportError(message)
    return InternalError(f"{message} (SQLSTATE {state or 'none'})")


def lane_not_accepting(message: str) -> LaneNotAccepting:
    """The error for the message of SQLSTATE FF001, which names the lane and its state."""
    told = _CLOSED_LANE.search(message)
    return LaneNotAccepting(*told.groups()) if told else LaneNotAccepting(message, "closed")


def is_trouble(error: BaseException) -> bool:
    """Is this trouble with the database, its connections or its limits, not with a statement?

    True of the errors of FlowFabric's own calls and of raw errors of the driver. A raw `OSError` or
    `TimeoutError` is not told from one that has nothing to do with the database: False.
    """
    if isinstance(error, FlowFabricError):
        return isinstance(error, _TROUBLE_ERRORS) and not isinstance(error, NeedsDatabase)
    if isinstance(error, asyncpg.PostgresError):
        state = str(error.sqlstate or "")
        return state in _TROUBLE or state.startswith(("08", "53"))
    if isinstance(error, asyncpg.InterfaceError):  # most are mistakes in the use of the driver
        return "connection is closed" in str(error)
    return isinstance(error, asyncpg.InternalClientError)


def find_trouble(error: BaseException, *, connection_lost: bool = False) -> BaseException | None:
    """The trouble that an exception of a handler is about; None if it is the handler's own failure.

    The causes of an exception count, because handlers wrap errors. Of a group all exceptions must
    be trouble. With `connection_lost` the connection of the handler's transaction is closed; then
    errors of the operating system, timeouts and misuse of the connection are its consequences.
    """
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if isinstance(link, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", link)
            return _trouble_of_group(group, connection_lost=connection_lost)
        if is_trouble(link) or (connection_lost and isinstance(link, _WHEN_LOST)):
            return link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return None


def _trouble_of_group(
    group: BaseExceptionGroup[BaseException], *, connection_lost: bool
) -> BaseException | None:
    found = [find_trouble(each, connection_lost=connection_lost) for each in group.exceptions]
    return found[0] if all(found) else None
