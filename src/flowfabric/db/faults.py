"""Errors of Postgres and its driver as FlowFabric errors, chosen by SQLSTATE."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import asyncpg

from flowfabric.errors import (
    FlowFabricError,
    InternalError,
    LaneNotAccepting,
    OperationTimeout,
    ResourceExhausted,
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
_RECONNECT: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03"})
_EXHAUSTED: Final = {
    "53100": "disk",
    "53200": "memory",
    "53300": "connections",
    "53400": "configuration limit",
}
_LANE_CLOSED: Final = "FF001"
_INVALID_TEXT: Final = frozenset({"22021", "22P05"})
_UNDEFINED: Final = frozenset({"3F000", "42P01", "42883", "42703"})


class SerializationConflict(FlowFabricError):
    """The transaction conflicted with another one and can run again; not raised outside `db`."""

    kind = "transport"
    code = "serialization_conflict"


@contextmanager
def translated(sql: str) -> Generator[None]:
    """Turn a driver error inside the block into a FlowFabric error with the statement's name."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise as_flowfabric_error(error, statement_name(sql)) from error


def statement_name(sql: str) -> str:
    """The name in the first line of a statement: `lifecycle.claim` of `-- lifecycle.claim`."""
    first = sql.lstrip().split("\n", 1)[0]
    return first.removeprefix("-- ") if first.startswith("-- ") else "statement"


def as_flowfabric_error(error: BaseException, operation: str) -> FlowFabricError:
    """The FlowFabric error for an error of the driver."""
    if isinstance(error, TimeoutError) and error.errno is None:
        return OperationTimeout(operation)
    if isinstance(error, OSError):
        return TransportError(f"{operation}: {error}")
    state = str(getattr(error, "sqlstate", None) or "")
    message = f"{operation}: {error}"
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
    if state == _LANE_CLOSED:
        return LaneNotAccepting(str(error))
    if state in _UNDEFINED:
        return Unavailable(operation, f"{error}; is the schema migrated? run: ff migrate")
    if state == "57014":
        return OperationTimeout(operation)
    if state.startswith("28") or state in ("3D000", "42501"):  # refused to log in; not granted
        return Unavailable(operation, str(error))
    if isinstance(error, asyncpg.DataError):
        return ValidationError("invalid_input", message)
    if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError):
        return TransportError(message)
    return InternalError(f"{message} (SQLSTATE {state or 'none'})")
