"""Before a command changes many things at once: say what it would do, and ask."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from flowfabric.cli.output import complain

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]


def confirmed(question: str, *, yes: bool) -> None:
    """Go on if the user agrees; where nobody can be asked, only with --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        complain(f"{question} Nothing was done: give --yes to do it without being asked.")
        raise typer.Exit(1)
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        complain("nothing was done")
        raise typer.Exit(1)
