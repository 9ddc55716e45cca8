"""Confirmation before a command makes a large change."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from flowfabric.cli.output import complain, visible

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirmed(question: str, *, yes: bool) -> None:
    """Return if the user confirms or gave --yes; else exit with code 1.

    Without a terminal there is no question: the command then needs --yes.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        complain(f"{question} Nothing was done: give --yes to do it without being asked.")
        raise typer.Exit(1)
    sys.stderr.write(f"{visible(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        complain("nothing was done")
        raise typer.Exit(1)
