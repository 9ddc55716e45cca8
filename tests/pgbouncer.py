"""A PgBouncer in transaction mode before the database of a test; Debian's package has it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit, urlunsplit

PATH = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")

CONFIG = """
[databases]
* = host={host} port={port} user={user}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 500
logfile = {directory}/log
pidfile = {directory}/pid
"""


@contextlib.contextmanager
def pgbouncer(dsn: str, *, size: int) -> Generator[str]:
    """A DSN that leads through a PgBouncer with `size` connections of its own."""
    assert PATH is not None
    parts = urlsplit(dsn)
    [host] = parse_qs(parts.query).get("host", [parts.hostname or "127.0.0.1"])
    directory = Path(tempfile.mkdtemp(prefix="flowfabric-pgbouncer-"))
    listen_port = _free_port()
    config = directory / "pgbouncer.ini"
    config.write_text(
        CONFIG.format(
            host=host,
            port=parts.port or 5432,
            user=parts.username or "postgres",
            listen_port=listen_port,
            size=size,
            directory=directory,
        )
    )
    user: list[str] = []
    if os.geteuid() == 0:  # PgBouncer refuses to run as root, and must reach the server's socket
        owner = Path(host).owner() if host.startswith("/") else "nobody"
        shutil.chown(directory, owner)
        shutil.chown(config, owner)
        user = ["-u", owner]
    process = subprocess.Popen(
        [PATH, "-q", *user, str(config)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_until_it_listens(listen_port)
        netloc = f"{parts.username or 'postgres'}@127.0.0.1:{listen_port}"
        yield urlunsplit(parts._replace(netloc=netloc, query="sslmode=disable"))
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _wait_until_it_listens(port: int) -> None:
    until = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < until, "PgBouncer does not listen"
            time.sleep(0.02)
