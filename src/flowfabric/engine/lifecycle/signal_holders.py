"""Workers of this process hear at once that leases of theirs were ended by a decision."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from flowfabric.db.signals import signal


class MovedLeases(msgspec.Struct, frozen=True):
    """The result row of a sweep: how many rows it moved, and the workers that held leases."""

    moved: int
    holders: list[str]


def holder_topic(worker_instance_id: str) -> str:
    """What is notified when a lease of this worker process was ended; as `sql.wake` names it."""
    return f"worker:{worker_instance_id}"


def signal_holders(holders: Iterable[str | None]) -> None:
    """Those of the holders that run in this process check their leases after the transaction.

    None is passed over: the execution was not leased. Workers of other processes are notified by
    the statement that ended the leases.
    """
    signal({holder_topic(each) for each in holders if each is not None})
