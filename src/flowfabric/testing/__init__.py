"""For tests of applications: a Postgres server, a database for each test, a clock to set.

plugin          the pytest plugin with its fixtures
databases       `TestServer`: creates, lends and drops databases
empty_database  what makes a database as new after a test
clock           `Clock`: the time of one database
history         `record_history`, `assert_replays`: does the code go on with older executions?
crash_after     a fault point: the worker dies after a step is recorded
"""

from flowfabric.testing.clock import Clock
from flowfabric.testing.crash_after import Crashes, crash_after
from flowfabric.testing.databases import TestServer
from flowfabric.testing.history import History, assert_replays, record_history

__all__ = [
    "Clock",
    "Crashes",
    "History",
    "TestServer",
    "assert_replays",
    "crash_after",
    "record_history",
]
