"""The executions this process holds, shared by the event loop and the renewer's thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from uuid import UUID

from flowfabric.engine.lifecycle.sql.lease import Claimed
from flowfabric.errors import ExecutionNotActive
from flowfabric.states import TerminalOutcome


class RunningAttempt:
    """One claimed execution, from claim to acknowledged outcome."""

    __slots__ = (
        "abandoned",
        "claimed",
        "failures",
        "finished",
        "joined",
        "lost",
        "on_lost",
        "parked",
        "renewed_at",
        "slot",
    )

    def __init__(self, claimed: Claimed, claimed_at: float) -> None:
        self.claimed = claimed
        self.renewed_at = claimed_at
        """When the last claim or renewal that succeeded was sent, on this machine's clock."""
        self.failures = 0
        self.lost = False
        self.abandoned = False
        """Nobody waits for the handler any more, not even for its thread."""
        self.finished = False
        """The handler is done; only the outcome is still on its way."""
        self.joined = False
        """It has children since it was claimed, and is a member of their flow."""
        self.parked = False
        """The attempt was put down and recorded as such; whatever the handler does is void."""
        self.slot: asyncio.Task[None] | None = None
        self.on_lost: asyncio.Event | None = None

    @property
    def is_member(self) -> bool:
        """Does anybody in a flow hear of its end?"""
        return self.joined or self.claimed.flow_id is not None


def was_cancelled(why: Exception) -> bool:
    """Is a lease gone because somebody wanted the execution to end, and not by any mishap?"""
    return isinstance(why, ExecutionNotActive) and why.terminal_outcome == TerminalOutcome.CANCELLED


class HeldLeases:
    """What is running now. The event loop adds and removes; the renewer only looks."""

    def __init__(self) -> None:
        self._running: dict[UUID, RunningAttempt] = {}

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[RunningAttempt]:
        return iter(tuple(self._running.values()))

    def add(self, running: RunningAttempt) -> None:
        self._running[running.claimed.lease.execution_id.uuid] = running

    def discard(self, running: RunningAttempt) -> None:
        uuid = running.claimed.lease.execution_id.uuid
        if self._running.get(uuid) is running:
            del self._running[uuid]

    def due(self, age: float) -> list[RunningAttempt]:
        """Those whose lease was last extended at least `age` seconds ago."""
        before = time.monotonic() - age
        return [running for running in self if running.renewed_at <= before and not running.lost]
