"""A virtual environment for each peer, created once and used again."""

import subprocess
import sys
import time
from typing import Final

from rich.console import Console

from bench.systems import System

STAMP: Final = "installed.txt"


class InstallationError(Exception):
    """pip could not install a peer; the message is the end of its output."""


def prepare(system: System, console: Console) -> None:
    """Create the environment of `system`, unless it exists with the wanted versions.

    Raises `InstallationError`.
    """
    if not system.requirements:
        return
    stamp = system.home / STAMP
    wanted = "\n".join(system.requirements) + "\n"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    console.print(
        f"installing {', '.join(system.requirements)} into .bench/{system.name} (first run only)",
        markup=False,
    )
    began = time.monotonic()
    _run(system, [sys.executable, "-m", "venv", "--clear", str(system.home)])
    _run(system, [system.python, "-m", "pip", "install", "--quiet", *system.requirements])
    stamp.write_text(wanted)
    console.print(f"installed {system.title} in {time.monotonic() - began:.0f} s")


def _run(system: System, command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallationError(f"{system.title}: {(done.stderr or done.stdout)[-2000:].strip()}")
