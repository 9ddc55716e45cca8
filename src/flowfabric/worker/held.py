"""The executions this process holds, shared by the event loop and the renewer's thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from uuid import UUID

from flowfabric.engine.lifecycle.claim import Claimed
from flowfabric.errors import ExecutionNotActive
from flowfabric.states import TerminalOutcome


class Held:
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


class Holdings:
    """What is held now. The event loop adds and removes; the renewer only looks."""

    def __init__(self) -> None:
        self._held: dict[UUID, Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Held]:
        return iter(tuple(self._held.values()))

    def add(self, held: Held) -> None:
        self._held[held.claimed.lease.execution_id.uuid] = held

    def discard(self, held: Held) -> None:
        uuid = held.claimed.lease.execution_id.uuid
        if self._held.get(uuid) is held:
            del self._held[uuid]

    def due(self, age: float) -> list[Held]:
        """Those whose lease was last extended at least `age` seconds ago."""
        before = time.monotonic() - age
        return [held for held in self if held.renewed_at <= before and not held.lost]
