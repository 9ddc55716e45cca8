"""Errors in words of the command line: the option or argument at fault comes first."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import typer

from flowfabric.cli.exit_codes import ExitCode
from flowfabric.cli.output import complain
from flowfabric.errors import (
    FlowFabricError,
    IdempotencyConflict,
    ResultTimeout,
    ValidationError,
)

USAGE_ERRORS: Final = cast("tuple[type[typer.BadParameter]]", typer.BadParameter.__bases__)
"""What is raised for a command line that cannot be read: the class that `BadParameter` is one of.

It is not named, because typer has it from click or from its own copy, depending on its version.
"""

_PARAMETER_OF: Final[Mapping[str, str]] = {
    "lane_id": "lane",
    "execution_kind": "kind",
    "created_within": "within",
    "public_state": "state",
    "idempotency_key": "key",
    "expected_lease_id": "lease",
    "signal_name": "name",
    "retention": "length",
    "worker_instance_id": "worker",
}
"""Fields of operations that have another name as a parameter of a command."""


def complain_of_usage(error: typer.BadParameter) -> int:
    """Print the usage of the command and what is wrong; returns the exit code."""
    context: Any = error.ctx
    parameter: Any = getattr(error, "param", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return error.exit_code
    if context is not None:
        sys.stderr.write(f"{context.get_usage()}    (more: {context.command_path} --help)\n")
    hint = getattr(error, "param_hint", None) or (parameter and _flag(parameter))
    named = hint is not None and type(error).__name__ == "BadParameter"
    # What a type refuses is said by the validator behind it, which names the class of its error.
    message = error.message.removeprefix("Value error, ")
    complain(f"{hint}: {message}" if named else error.format_message())
    return ExitCode.USAGE


def in_words_of(command: Any, arguments: Sequence[str], error: FlowFabricError) -> str:
    """The message of an error, which begins with the option at fault if there is one.

    What the message advises to write in Python is what to write in a shell.
    """
    if isinstance(error, IdempotencyConflict):
        return str(error).replace("on_conflict='return'", "--on-conflict return")
    if isinstance(error, ResultTimeout):
        return str(error).replace("handle.explain()", f"ff explain '{error.execution_id}'")
    if not isinstance(error, ValidationError) or error.field is None:
        return str(error)
    for word in arguments:
        command = getattr(command, "commands", {}).get(word, command)
    field = "tag" if error.field.startswith("tag ") else error.field
    wanted = _PARAMETER_OF.get(field, field)
    for parameter in command.params:
        if wanted.lower() in (parameter.name, _flag(parameter).lower()):
            return f"{_flag(parameter)}: {error.detail.removeprefix(error.field).strip()}"
    return error.detail


def _flag(parameter: Any) -> str:
    """How the parameter is written: `--lane`, or `PAYLOAD`."""
    if parameter.param_type_name == "option":
        return parameter.opts[0]
    return (parameter.metavar or parameter.name.upper()).strip("[].")
