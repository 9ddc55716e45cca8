"""What the exit code of a command says, and which error gives which."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from flowfabric.errors import (
    ConfigError,
    FlowFabricError,
    NeedsDatabase,
    OperationTimeout,
    PermissionDenied,
    ResourceExhausted,
    ResultTimeout,
    TransportError,
    Unavailable,
    ValidationError,
)


class ExitCode(IntEnum):
    """The exit codes of `ff`."""

    DONE = 0
    FAILED = 1
    """The execution ended without a result, or the command was refused."""
    USAGE = 2
    """An argument, an option or the named application is wrong; nothing was done."""
    TIMEOUT = 3
    """The time to wait is over; the execution goes on."""
    NO_DATABASE = 4
    """There is no database, it does not answer, or its schema does not fit."""


_BY_ERROR: Final[tuple[tuple[type[FlowFabricError], ExitCode], ...]] = (
    (ResultTimeout, ExitCode.TIMEOUT),
    (OperationTimeout, ExitCode.TIMEOUT),
    (TransportError, ExitCode.NO_DATABASE),
    (PermissionDenied, ExitCode.FAILED),
    (NeedsDatabase, ExitCode.FAILED),
    (Unavailable, ExitCode.NO_DATABASE),
    (ResourceExhausted, ExitCode.NO_DATABASE),
    (ValidationError, ExitCode.USAGE),
)
_OF_STATE: Final = frozenset({"corruption", "invalid_input"})
"""Codes that, without a field, are about what is stored and not about what was given."""


def exit_code(error: FlowFabricError) -> ExitCode:
    """The exit code for the error that ended a command."""
    if isinstance(error, ConfigError):
        return ExitCode.NO_DATABASE if error.context == "database" else ExitCode.USAGE
    if isinstance(error, ValidationError) and error.field is None and error.code in _OF_STATE:
        return ExitCode.FAILED
    for kind, code in _BY_ERROR:
        if isinstance(error, kind):
            return code
    return ExitCode.FAILED
