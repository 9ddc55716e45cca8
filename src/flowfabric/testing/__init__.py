"""For tests of applications: a Postgres, a database a test, and a clock that tests set."""

from flowfabric.testing.clock import Clock
from flowfabric.testing.databases import TestServer

__all__ = ["Clock", "TestServer"]
