"""A PgBouncer in transaction mode, between the tests and their server."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

from flowfabric.db import pool
from tests.warm_server import WarmServer

_PORT: Final = 5432
"""Of the Unix socket: with the usual number a DSN needs no port. Nothing listens on TCP."""
_SETTINGS: Final = f"""
[pgbouncer]
listen_addr =
listen_port = {_PORT}
pool_mode = transaction
auth_type = any
max_client_conn = 1000
unix_socket_mode = 0777
"""
_PLANNER: Final = "; ".join(
    f"SET {name} = off" for name in ("enable_seqscan", "enable_hashjoin", "enable_mergejoin")
)
"""What docs/operations.md sets on the role: the tests log in as the owner of the server."""


def installed() -> str | None:
    """The path of the program, or None."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


class PgBouncer:
    """A running PgBouncer with its defaults, but for transaction mode."""

    def __init__(self, process: subprocess.Popen[bytes], directory: Path) -> None:
        self._process, self._directory = process, directory

    @classmethod
    def start(cls, dsn: str, **more: object) -> PgBouncer:
        """In front of the server of `dsn`, for all databases and as the user of `dsn`."""
        program = installed()
        assert program is not None, "pgbouncer is not installed"
        directory = Path(tempfile.mkdtemp(prefix="ff-pgbouncer-"))
        directory.chmod(0o777)
        settings = directory / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = {_target(dsn)} connect_query='{_PLANNER}'\n"
            f"{_SETTINGS}unix_socket_dir = {directory}\n"
            + "".join(f"{name} = {value}\n" for name, value in more.items())
        )
        as_user = ["-u", _plain_user(dsn)] if os.geteuid() == 0 else []  # root is refused
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, "-q", *as_user, str(settings)], stdout=log, stderr=log
            )
        started = cls(process, directory)
        try:
            started._answers()
        except BaseException:
            started.stop()
            raise
        return started

    def __enter__(self) -> PgBouncer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it and remove its directory; connections through it are cut."""
        self._process.terminate()
        self._process.wait(10)
        shutil.rmtree(self._directory, ignore_errors=True)

    def through(self, dsn: str) -> str:
        """The DSN of the same database, through this PgBouncer."""
        user = urlsplit(dsn).username or "postgres"
        return urlunsplit(
            urlsplit(dsn)._replace(netloc=f"{user}:@", query=f"host={self._directory}")
        )

    def _answers(self) -> None:
        """Wait until it accepts connections."""
        path, until = str(self._directory / f".s.PGSQL.{_PORT}"), time.monotonic() + 10
        while True:
            with socket.socket(socket.AF_UNIX) as knock:
                if knock.connect_ex(path) == 0:
                    return
            said = (self._directory / "log").read_text()
            assert self._process.poll() is None, said
            assert time.monotonic() < until, f"pgbouncer does not listen: {said}"
            time.sleep(0.02)


class PooledServer(WarmServer):
    """A test server whose databases are reached through a PgBouncer of this process."""

    pooled = True
    _bouncer: PgBouncer | None = None

    async def create(self) -> str:
        return self._through(await super().create())

    async def create_empty(self) -> str:
        return self._through(await super().create_empty())

    def stop(self) -> None:
        if self._bouncer is not None:
            self._bouncer.stop()
        super().stop()

    def _through(self, dsn: str) -> str:
        if self._bouncer is None:
            self._bouncer = PgBouncer.start(dsn)
        return self._bouncer.through(dsn)


def name_connections() -> None:
    """Connections of this process have names behind PgBouncer too, which passes names on.

    The engine sends none there: the server connections would be renamed for every transaction. The
    tests look for connections by their names; each connection of a test itself has one of its own.
    """
    settings, numbers = pool._settings, itertools.count(1)

    def named(config: pool.DatabaseConfig, role: str, **more: bool) -> dict[str, object]:
        found = settings(config, role, **more)
        if config.pooler:
            number = f" {os.getpid()}.{next(numbers)}" if role == "tests" else ""
            found["server_settings"] = {"application_name": f"flowfabric {role}{number}"}
        return found

    pool._settings = named


def _target(dsn: str) -> str:
    """Where the server is, in the words of PgBouncer."""
    parts = urlsplit(dsn)
    facts = {
        "host": _host(dsn),
        "port": str(parts.port or 5432),
        "user": parts.username or "postgres",
    }
    if parts.password:
        facts["password"] = unquote(parts.password)
    return " ".join(f"{name}={value}" for name, value in facts.items())


def _host(dsn: str) -> str:
    parts = urlsplit(dsn)
    return parse_qs(parts.query).get("host", [parts.hostname or "127.0.0.1"])[0]


def _plain_user(dsn: str) -> str:
    """The user that may enter the directory of the server's socket; any for a server on TCP."""
    names = {user.pw_uid: user.pw_name for user in pwd.getpwall()}
    if (directory := Path(_host(dsn))).is_dir() and directory.stat().st_uid != 0:
        return names[directory.stat().st_uid]
    return next(name for name in ("postgres", "nobody") if name in names.values())
