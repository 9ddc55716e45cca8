"""Runs the adapter of one system as a process of its own, and reads what it prints."""

import asyncio
import contextlib
import os
import signal
from typing import Final

from bench.systems import ROOT, System

NOT_SUPPORTED: Final = 3
"""The exit status of an adapter whose system lacks what the scenario needs."""

GRACE: Final = 30.0


class AdapterError(Exception):
    """An adapter ended without figures; the message is the last line of its output."""


class NotSupported(AdapterError):
    """The system lacks what the scenario needs."""


async def call(system: System, *words: str, timeout: float) -> list[str]:
    """The lines that the adapter prints for one command. Raises `AdapterError`.

    The adapter stops waiting for the system after `timeout` seconds, and is killed when it has
    not answered for as long again.
    """
    process = await asyncio.create_subprocess_exec(
        *system.command(*words, "--timeout", f"{timeout:g}"),
        cwd=ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), GRACE + 2 * timeout)
    except TimeoutError:
        raise AdapterError(f"no answer after {GRACE + 2 * timeout:.0f} s") from None
    finally:
        # The adapter leads a process group, so its worker processes end with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    lines = out.decode().strip().splitlines()
    if process.returncode or not lines:
        said = err.decode().strip().splitlines()
        kind = NotSupported if process.returncode == NOT_SUPPORTED else AdapterError
        raise kind(said[-1] if said else f"exit status {process.returncode}")
    return lines
