"""A database of its own for every story, and a client on it."""

from tests.worker.conftest import client

__all__ = ["client"]
