"""A client on the test's own database."""

from tests.worker.conftest import client

__all__ = ["client"]
