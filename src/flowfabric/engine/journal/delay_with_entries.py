"""active → runnable(delayed): handlers sleep, and what they wait for is in their journals."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.engine.journal.record_entries import numbered_columns
from flowfabric.engine.lifecycle.delay import Delayed, DelayRequest, delay_and_record
from flowfabric.errors import Refusal, invalid_input


class Sleeper(msgspec.Struct, frozen=True, kw_only=True):
    """A handler that waits for time alone, and its entries that are not written yet."""

    request: DelayRequest
    entries: Sequence[EntryWrite] = ()

    def __post_init__(self) -> None:
        if any(each.lease != self.request.lease for each in self.entries):
            raise invalid_input("entries", len(self.entries), "must have the lease of the delay")


async def delay_with_entries(
    conn: Connection, sleepers: Sequence[Sleeper]
) -> list[Delayed | Refusal]:
    """As `delay`, for executions of different leases; their entries are recorded with it.

    Nothing is recorded under a lease that is refused.
    """
    requests = [each.request for each in sleepers]
    numbers = {request.lease: number for number, request in enumerate(requests, 1)}
    writes = [entry for each in sleepers for entry in each.entries]
    return await delay_and_record(conn, requests, numbered_columns(numbers, writes))
