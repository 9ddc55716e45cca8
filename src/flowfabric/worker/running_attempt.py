"""The attempts whose leases this process holds, shared by the event loop and the renewer."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.sql.lease import Claimed
from flowfabric.errors import ExecutionNotActive, LeaseLost
from flowfabric.ids import ExecutionId
from flowfabric.states import TerminalOutcome

if TYPE_CHECKING:
    from flowfabric.engine.journal.read_journal import Journal
    from flowfabric.worker.frame_writer import AttemptFrames


class RunningAttempt:
    """One claimed execution, from its claim until its outcome is recorded."""

    __slots__ = (
        "answered_at",
        "claimed",
        "claimed_at",
        "compensates",
        "error",
        "failures",
        "finished",
        "frames",
        "gives_up",
        "has_children",
        "lend_slot",
        "lost",
        "on_lost",
        "renewed_at",
        "slot",
        "stored",
        "suspended",
        "unwound",
    )

    def __init__(
        self, claimed: Claimed, claimed_at: float, answered_at: float | None = None
    ) -> None:
        self.claimed = claimed
        self.claimed_at = claimed_at
        """When the claim was sent, on this machine's clock."""
        self.answered_at = claimed_at if answered_at is None else answered_at
        """When the claim was committed at the latest, on this machine's clock."""
        self.renewed_at = claimed_at
        """When the last successful claim or renewal was sent, on this machine's clock."""
        self.failures = 0
        """How many renewals have failed since the last one that succeeded."""
        self.lost = False
        """The lease is not held any more."""
        self.finished = False
        """The handler has returned or raised; what follows is only the recording."""
        self.has_children = False
        """The handler has spawned children, which made the execution a member of their flow."""
        self.compensates = False
        """The handler has armed compensations."""
        self.suspended = False
        """The attempt is recorded as suspended to wait; the handler has no outcome any more."""
        self.gives_up = False
        """A statement that gives up the lease is in flight: its answer tells what became of it."""
        self.unwound = False
        """The task of a suspended attempt was cancelled, because its handler did not end."""
        self.error: BaseException | None = None
        """What the handler raised, for the log; only until the outcome is recorded."""
        self.frames: AttemptFrames | None = None
        """The frames that the handler emits; None until it emits the first."""
        self.slot: asyncio.Task[None] | None = None
        """The task that runs the handler."""
        self.stored: asyncio.Future[Journal | None] | None = None
        """The journal, if it is read before the attempt has a slot; None if that failed."""
        self.lend_slot: Callable[[RunningAttempt, bool], None] | None = None
        """Called with True while the handler waits for time alone, and another one may run."""
        self.on_lost: asyncio.Event | None = None
        """Set when the lease is lost; made when the handler first asks for it."""

    def __str__(self) -> str:
        """How log messages name the attempt."""
        kind, number = self.claimed.execution_kind, self.lease.attempt_index + 1
        return f"{kind} {self.execution_id} attempt {number}"

    @property
    def lease(self) -> Lease:
        return self.claimed.lease

    @property
    def execution_id(self) -> ExecutionId:
        return self.claimed.lease.execution_id

    @property
    def is_member(self) -> bool:
        """Is the execution a member of a flow, so that its completion has to be dispatched?"""
        return self.has_children or self.claimed.flow_id is not None

    @property
    def healthy(self) -> bool:
        """Is the lease held, with fewer than three failed renewals in a row?"""
        return not self.lost and self.failures < 3

    @property
    def lost_event(self) -> asyncio.Event:
        """Set when the lease is lost; only for the event loop that runs the handler."""
        if self.on_lost is None:
            self.on_lost = asyncio.Event()
            if self.lost:
                self.on_lost.set()
        return self.on_lost

    @contextlib.contextmanager
    def giving_up(self) -> Generator[None]:
        """The block gives up the lease by a statement.

        That may be committed, and the execution be claimed again, before the answer is here: a
        lease that is refused meanwhile is not lost.
        """
        self.gives_up = True
        try:
            yield
        finally:
            self.gives_up = False

    def check_lease(self) -> None:
        """Raise `LeaseLost` if the lease is lost."""
        if self.lost:
            raise LeaseLost(f"the lease of {self.execution_id} is lost")


def was_cancelled(reason: Exception) -> bool:
    """Is a lease lost because the execution was cancelled, which is no fault of the worker?"""
    return (
        isinstance(reason, ExecutionNotActive)
        and reason.terminal_outcome == TerminalOutcome.CANCELLED
    )


class HeldLeases:
    """The running attempts by execution. The event loop changes them; the renewer only reads.

    An execution that this worker lost may be claimed by this worker again, while the handler of the
    lost lease still runs: that attempt stays among them until its handler has ended.
    """

    def __init__(self) -> None:
        self._attempts: dict[UUID, RunningAttempt] = {}
        self._superseded: dict[RunningAttempt, None] = {}
        self.on_superseded: Callable[[], None] | None = None
        """Called when a handler runs whose execution has been claimed again."""

    def __len__(self) -> int:
        return len(self._attempts) + len(self._superseded)

    def __iter__(self) -> Iterator[RunningAttempt]:
        return iter((*tuple(self._superseded), *tuple(self._attempts.values())))

    def add(self, attempt: RunningAttempt) -> None:
        uuid = attempt.execution_id.uuid
        before = self._attempts.get(uuid)
        self._attempts[uuid] = attempt
        if before is not None and not before.finished:
            self._superseded[before] = None
            if self.on_superseded is not None:
                self.on_superseded()

    def discard(self, attempt: RunningAttempt) -> None:
        """Remove the attempt; one of the same execution that was claimed since stays."""
        uuid = attempt.execution_id.uuid
        if self._attempts.get(uuid) is attempt:
            del self._attempts[uuid]
        self._superseded.pop(attempt, None)

    def due(self, age: float) -> list[RunningAttempt]:
        """The attempts whose lease was last extended at least `age` seconds ago."""
        before = time.monotonic() - age
        return [attempt for attempt in self if attempt.renewed_at <= before and not attempt.lost]
