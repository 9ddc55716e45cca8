"""The commands that deployment files name, compared with those of `ff`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import typer.main

from flowfabric.cli.main import app as ff

ROOT: Final = Path(__file__).resolve().parents[2]
DEPLOY: Final = ROOT / "deploy"


def option(words: Sequence[str], name: str) -> str:
    """The value of an option of a command."""
    return words[list(words).index(name) + 1]


def check_command(words: Sequence[str]) -> None:
    """Fail unless it is a command of `ff` with options that the command has."""
    program, noun, *rest = words
    assert program.rsplit("/", 1)[-1] == "ff", words
    commands: dict[str, Any] = getattr(typer.main.get_command(ff), "commands", {})
    assert noun in commands, f"ff has no command {noun}"
    known = {name for each in commands[noun].params for name in (*each.opts, *each.secondary_opts)}
    given = {word for word in rest if word.startswith("--")}
    assert given <= known, f"ff {noun} has no {given - known}"
