"""Who submits or acts: the user and the machine."""

from __future__ import annotations

import getpass
import os
import socket


def who() -> str:
    """`user@host`, as it is kept with executions and operator events."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"[:256]
