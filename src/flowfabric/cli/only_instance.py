"""One `ff dev` in a directory: a lock that its process holds, with its pid in the file."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path

import typer

from flowfabric.cli.exit_codes import ExitCode
from flowfabric.cli.output import complain
from flowfabric.errors import ConfigError


@contextlib.contextmanager
def only_instance(directory: Path) -> Generator[None]:
    """Hold the lock of this directory; if another process holds it, say which and exit with 1.

    The lock ends with the process, however that dies. Raises `ConfigError` if the directory cannot
    be written.
    """
    path = directory / "dev.lock"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError as error:
        raise ConfigError("dev", str(path), f"cannot be written: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            _complain(file.read().strip())
            raise typer.Exit(ExitCode.FAILED) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _complain(pid: str) -> None:
    named, stop = (f" (pid {pid})", f"kill {pid}") if pid else ("", "Ctrl-C in its terminal")
    complain(
        f"another `ff dev`{named} runs in this directory. Its database serves every command here,"
        f" and ff worker MODULE:APP adds your app to it. To start anew, stop it first: {stop}"
    )
