"""The user and the host of this process."""

from __future__ import annotations

import getpass
import os
import socket


def user_at_host() -> str:
    """`user@host`, as it is recorded with executions and operator events."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"[:256]
