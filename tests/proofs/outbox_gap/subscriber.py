"""A subscriber that is a process: `python -m tests.proofs.outbox_gap.subscriber DSN CURSOR`.

Every lease event after the cursor is a line of its output.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.engine.engine import Engine
from flowfabric.engine.events.completion_events import CompletionEvent
from flowfabric.engine.events.cursor import cursor_from_hex
from flowfabric.engine.events.lease_events import LeaseEvent


class Seen(msgspec.Struct, frozen=True):
    """What a subscriber keeps of an event."""

    event_id: int
    cursor: bytes
    execution: str
    word: str
    lease_epoch: int = 0

    @classmethod
    def of(cls, event: LeaseEvent | CompletionEvent) -> Seen:
        execution = str(event.execution_id)
        if isinstance(event, LeaseEvent):
            return cls(event.event_id, event.cursor, execution, event.kind, event.lease_epoch)
        return cls(event.event_id, event.cursor, execution, event.outcome)


async def _subscribe(dsn: str, cursor: bytes) -> None:
    engine = await Engine.connect(DatabaseConfig(dsn=dsn), role="subscriber")
    async with await engine.subscribe_lease_history(cursor) as events:
        async for event in events:
            sys.stdout.buffer.write(msgspec.json.encode(Seen.of(event)) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(_subscribe(sys.argv[1], cursor_from_hex(sys.argv[2])))
