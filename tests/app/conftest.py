"""The database and the client of the worker's tests."""

from tests.worker.conftest import client, ff_dsn, kept

__all__ = ["client", "ff_dsn", "kept"]
