"""The process that fires schedules looks at once: an instant may be nearer than its next look."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, execute
from flowfabric.db.signals import signal

TOPIC: Final = "schedule"
"""Schedules were created, changed or resumed."""

# The process that sweeps listens without a registration: that it sweeps is one.
WAKE_SWEEPER: Final[LiteralString] = """
-- schedules.wake_sweeper
SELECT pg_notify('ff_wake', 'schedule')
 WHERE EXISTS (SELECT FROM ff.sweeper WHERE NOT standby AND held_until_ms > ff.now_ms())
"""


async def wake_sweeper(conn: Connection) -> None:
    """When the transaction has ended, the process that sweeps looks for what is due, and when.

    Without effect if no process sweeps. A lost notification costs the time until the next look.
    """
    await execute(conn, WAKE_SWEEPER)
    signal({TOPIC})
