"""A virtual environment for each peer and for each base commit, created once and used again."""

import subprocess
import sys
import time
from typing import Final

from rich.console import Console

from bench.systems import ROOT, System

STAMP: Final = "installed.txt"


class InstallationError(Exception):
    """git or pip could not install a system; the message is the end of its output."""


def prepare(system: System, console: Console) -> None:
    """Create the environment of `system`, unless it exists with the wanted versions.

    Raises `InstallationError`.
    """
    if is_installed(system):
        return
    console.print(
        f"installing {', '.join(system.requirements)} into .bench/{system.home.name}"
        " (first run only)",
        markup=False,
    )
    began = time.monotonic()
    run(system.title, sys.executable, "-m", "venv", "--clear", str(system.home))
    run(system.title, system.python, "-m", "pip", "install", "--quiet", *system.requirements)
    (system.home / STAMP).write_text(_wanted(system))
    console.print(f"installed {system.title} in {time.monotonic() - began:.0f} s")


def is_installed(system: System) -> bool:
    """Whether the environment of `system` has the wanted versions, or needs none of its own."""
    if not system.requirements:
        return True
    stamp = system.home / STAMP
    return stamp.exists() and stamp.read_text() == _wanted(system)


def _wanted(system: System) -> str:
    return "\n".join(system.requirements) + "\n"


def run(what: str, *command: str) -> str:
    """Run a command for `what` and return its output. Raises `InstallationError`."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallationError(f"{what}: {(done.stderr or done.stdout)[-2000:].strip()}")
    return done.stdout.strip()
