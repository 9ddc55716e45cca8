"""For tests of applications: a Postgres server, a database for each test, a clock to set.

plugin          the pytest plugin with its fixtures
databases       `TestServer`: creates, lends and drops databases
empty_database  what makes a database as new after a test
clock           `Clock`: the time of one database
"""

from flowfabric.testing.clock import Clock
from flowfabric.testing.databases import TestServer

__all__ = ["Clock", "TestServer"]
