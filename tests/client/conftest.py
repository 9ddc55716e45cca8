"""A client on the test's own database."""

import pytest

from tests.worker.conftest import client

__all__ = ["client"]


@pytest.fixture(autouse=True)
def _both_ways(way: str) -> None:
    """Every test may run over HTTP as well."""
