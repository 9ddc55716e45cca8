"""How long a notification takes from a connection of the pool to the listener of the process."""

from __future__ import annotations

import secrets
import time
from typing import Final, LiteralString

from flowfabric.db.listen import Listener, signalled
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection, execute
from flowfabric.db.transaction import run

SEND: Final[LiteralString] = """
-- db.measure_notify_lag
SELECT pg_notify('ff_wake', %(topic)s::text)
"""


async def measure_notify_lag(pool: Pool, listener: Listener, *, within: float) -> float | None:
    """Seconds until a notification arrived; None if this process does not listen.

    A notification that does not arrive counts as `within` seconds late.
    """
    if not listener.connected.is_set():
        return None
    topic = f"metrics:{secrets.token_hex(8)}"
    event = listener.subscribe(topic)
    try:
        sent_at = time.monotonic()

        async def send(conn: Connection) -> None:
            nonlocal sent_at
            sent_at = time.monotonic()
            await execute(conn, SEND, topic=topic)

        await run(pool, "measure_notify_lag", send)
        arrived = await signalled(event, within)
        return time.monotonic() - sent_at if arrived else within
    finally:
        listener.unsubscribe(event)
