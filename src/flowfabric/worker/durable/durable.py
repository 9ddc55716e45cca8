"""The durable calls of one running attempt: made when its handler makes the first."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from flowfabric.conditions import OperatorOnly
from flowfabric.counters import UNVISITED_ENTRIES
from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.engine.suspensions.read_inbox import Inbox
from flowfabric.engine.suspensions.suspension import SuspendRequest
from flowfabric.errors import ConfigError, EntryDecodeError, NonDeterministicReplay
from flowfabric.instants import epoch_ms
from flowfabric.states import DIVERGENCE, JournalKind, JournalState, SuspensionReason
from flowfabric.worker.durable.journal import AttemptJournal
from flowfabric.worker.durable.keys import VERSION, EntryKey
from flowfabric.worker.durable.lease_lost import REFUSED, lease_lost
from flowfabric.worker.durable.parking import Parking
from flowfabric.worker.durable.step_errors import StoredError, decode_error
from flowfabric.worker.durable.steps import refuse_nested
from flowfabric.worker.durable.values import StoredValue, Values
from flowfabric.worker.repeat_while_leased import repeat_while_leased

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowfabric.engine.executions.read_outcomes import ExecutionOutcome
    from flowfabric.engine.journal.read_journal import Journal
    from flowfabric.ids import ExecutionId
    from flowfabric.tokens import WaitpointToken
    from flowfabric.worker.durable.journal import KnownEntry
    from flowfabric.worker.durable.services import DurableServices
    from flowfabric.worker.durable.settings import DurableSettings
    from flowfabric.worker.running_attempt import RunningAttempt
    from flowfabric.worker.transaction import HandlerTransaction

T = TypeVar("T")
log: Final = logging.getLogger("flowfabric.worker")


class Durable:
    """Journal, parking and services of one attempt, for its durable calls."""

    def __init__(
        self,
        attempt: RunningAttempt,
        settings: DurableSettings,
        services: DurableServices,
        transaction: HandlerTransaction,
        stored: Journal | None,
    ) -> None:
        self.attempt, self.settings, self.services = attempt, settings, services
        self.values = Values(settings.codec, settings.max_step_bytes)
        self.journal = AttemptJournal(attempt, settings, stored, partial(services.record, attempt))
        self.parking = Parking(attempt, self.journal, services, transaction)
        self.transaction = transaction
        self.uses = 0
        """How many entries of this run are reports of usage."""
        self.taken: set[int] = set()
        """The numbers of the signals that calls of this run have consumed."""
        self._noted: dict[str, Any] = {}
        self._closed = False
        self._outcomes: dict[ExecutionId, ExecutionOutcome] = {}
        self._tokens: dict[UUID, WaitpointToken] = {}
        if stored is not None:
            inbox = Inbox(signal_seq=stored.signal_seq, signals=stored.signals)
            services.keep_inbox(attempt, inbox, epoch_ms(attempt.claimed.claimed_at))
        if settings.version and not self.journal.began_before:
            self._note_version()

    def allot(self, name: str, item: str | None = None) -> EntryKey:
        """The key of a durable call, at the moment when it is made; raises `LeaseLost`."""
        refuse_nested(name)
        self.attempt.check_lease()
        branch = self.journal.call_begins()
        return self.journal.occurrences.allot(name, item, branch.task)

    async def frontier(self, key: EntryKey) -> None:
        """Wait until every recorded entry has been asked for; `key` is a new call."""
        if not self.journal.is_frontier:
            with self.parking.busy():
                await self.journal.caught_up(key)

    async def record(self, *writes: EntryWrite) -> None:
        """The entries are committed, with those that waited for a flush."""
        self.parking.check()
        with self.parking.busy():
            await self.journal.record(*writes)

    async def flush(self) -> None:
        """What waited for a flush is committed: before a step runs, or a child is started."""
        await self.record()

    async def fenced(self, operation: Callable[[], Awaitable[T]]) -> T:
        """The answer of an operation that needs the lease; raises `LeaseLost`.

        A divergence that the engine finds is kept, as one that the journal finds.
        """
        self.parking.check()
        try:
            with self.parking.busy():
                await self.services.frames.flush(self.attempt)
                answer = await repeat_while_leased(self.attempt, operation)
        except REFUSED as refusal:
            lease_lost(self.attempt, refusal)
        except NonDeterministicReplay as divergence:
            self.journal.divergence = divergence
            raise
        if isinstance(answer, REFUSED):
            lease_lost(self.attempt, answer)
        return answer

    def decode(self, key: EntryKey, stored: StoredValue, wanted: Any) -> Any:
        """The value of a recorded entry; one that does not decode any more is a divergence."""
        try:
            return self.values.decode(key.name, stored, wanted)
        except EntryDecodeError as error:
            self.journal.divergence = error
            raise

    def decode_error(self, entry: KnownEntry) -> StoredError:
        """The error of an entry that has failed; one that does not decode is a divergence."""
        try:
            return decode_error(entry.name, entry.value)
        except EntryDecodeError as error:
            self.journal.divergence = error
            raise

    async def outcomes(
        self, children: Sequence[ExecutionId]
    ) -> dict[ExecutionId, ExecutionOutcome]:
        """The outcomes of children; the first call reads those of all that the journal names."""
        wanted = [each for each in children if each not in self._outcomes]
        if wanted:
            more = [] if self._outcomes else self.journal.named_children()
            asked = list(dict.fromkeys((*wanted, *more)))
            self._outcomes.update(await self.services.engine.read_outcomes(asked))
        return {each: self._outcomes[each] for each in children if each in self._outcomes}

    async def token_of(self, waitpoint_id: UUID) -> WaitpointToken:
        """The token of a waitpoint; the first call reads those of all that the journal names."""
        if waitpoint_id not in self._tokens:
            named = [
                self.waitpoint_id(key)
                for key, entry in self.journal.entries.items()
                if entry.kind is JournalKind.WAITPOINT
            ]
            engine, attempt = self.services.engine, self.attempt
            with self.parking.busy():
                found = await repeat_while_leased(
                    attempt, lambda: engine.read_waitpoints(attempt.execution_id, named)
                )
            self._tokens |= {each: waitpoint.token for each, waitpoint in found.items()}
        return self._tokens[waitpoint_id]

    # Ids and numbers that follow from the execution, the generation and the key.

    def effect_key(self, key: EntryKey) -> UUID:
        """The same in every try, attempt and worker: for the outside system of a step."""
        return self._derived("effect", key)

    def derived_uuid(self, key: EntryKey) -> UUID:
        """The uuid of a call of `ctx.uuid()`."""
        return self._derived("uuid", key)

    def derived_random(self, key: EntryKey) -> float:
        """The number of a call of `ctx.random()`, at least 0 and below 1."""
        return random.Random(self._derived("random", key).int).random()

    def waitpoint_id(self, key: EntryKey) -> UUID:
        """The id of the waitpoint of a call of `ctx.waitpoint()`."""
        return self._derived("waitpoint", key)

    def _derived(self, purpose: str, key: EntryKey) -> UUID:
        parts = (purpose, str(self.journal.generation), key.name, key.item, str(key.occurrence))
        text = "\x1f".join(parts).encode()
        digest = hashlib.sha256(self.attempt.execution_id.uuid.bytes + text).digest()
        return UUID(bytes=digest[:16], version=5)

    def usage_key(self, key: EntryKey) -> str:
        """The key under which a report of usage counts.

        It is the same whenever the handler runs. A handler that has made no other durable call
        does its work again when it runs again: then the key belongs to this claim.
        """
        own = f":{self.attempt.lease.lease_epoch}" if self._is_plain else ""
        return f"{self._derived('usage', key)}{own}"

    @property
    def _is_plain(self) -> bool:
        """Has nothing been recorded but reports of usage and the version?"""
        count = self.uses + (EntryKey(VERSION, "", 0) in self.journal.entries)
        return not self.journal.began_before and len(self.journal.entries) == count

    # Lazy entries.

    def noted(self, name: str, kind: JournalKind, value: Any, item: str | None = None) -> Any:
        """The recorded value of a call that needs no await; a new one is written with a flush."""
        key = self.allot(name, item)
        entry = self.journal.find(key, kind)
        if entry is not None:
            return self.decode(key, StoredValue(entry.value, entry.encoding), Any)
        write = self.journal.entry(key, kind, JournalState.DONE, value=self.values.encode(value))
        self.journal.later(write)
        return value

    def noted_once(self, name: str, kind: JournalKind) -> Any:
        """The recorded answer of a name, whichever call asks; the first is "not replaying"."""
        if name not in self._noted:
            self._noted[name] = self.noted(name, kind, not self.journal.replaying)
        return self._noted[name]

    @property
    def version(self) -> int:
        """The version of the task with which the execution began."""
        entry = self.journal.entries.get(EntryKey(VERSION, "", 0))
        if entry is None:
            return 0
        return self.decode(EntryKey(VERSION, "", 0), StoredValue(entry.value, entry.encoding), int)

    def _note_version(self) -> None:
        """The execution begins with this version of the task."""
        value = self.values.encode(self.settings.version)
        key = EntryKey(VERSION, "", 0)
        self.journal.later(
            self.journal.entry(key, JournalKind.VERSION, JournalState.DONE, value=value)
        )

    # The end of the handler.

    async def close(self, ended_by: BaseException | None) -> None:
        """Write what waited for a flush, unless the attempt is over; log what was not asked for.

        `ended_by` is the error of the handler; None if it has returned.
        """
        if self._closed:
            return
        self._closed = True
        await self.parking.close()
        attempt, journal = self.attempt, self.journal
        self.services.forget(attempt)
        if attempt.lost or attempt.suspended or journal.divergence is not None:
            return
        if self.uses and self._is_plain:
            return
        await journal.flush(ended_by)
        if journal.replaying and ended_by is None:
            UNVISITED_ENTRIES.add(attempt.claimed.execution_kind, count=len(journal.unvisited))
            log.warning(
                "%s returned without calls that are recorded: %s",
                attempt,
                ", ".join(journal.unvisited[:20]),
            )

    def divergence_request(self) -> SuspendRequest:
        """The suspension of an attempt whose handler made other calls than before."""
        return SuspendRequest(
            lease=self.attempt.lease,
            condition=OperatorOnly(),
            reason=SuspensionReason.WAITING_FOR_OPERATOR_REVIEW,
            detail=f"{DIVERGENCE}{self.journal.divergence}",
            keeps_waitpoints=True,
        )


class LazyDurable:
    """The durable calls of an attempt, made with the first: other handlers cost nothing."""

    __slots__ = ("_attempt", "_services", "_settings", "_stored", "_transaction", "made")

    def __init__(
        self,
        attempt: RunningAttempt,
        settings: DurableSettings,
        services: DurableServices,
        transaction: HandlerTransaction,
        stored: Journal | None,
    ) -> None:
        self._attempt, self._settings, self._services = attempt, settings, services
        self._transaction, self._stored = transaction, stored
        self.made: Durable | None = None
        if stored is not None and stored.entries:
            self.made = Durable(attempt, settings, services, transaction, stored)

    @property
    def diverged(self) -> bool:
        """Did the handler make other calls than before?"""
        return self.made is not None and self.made.journal.divergence is not None

    def busy(self) -> contextlib.AbstractContextManager[None]:
        """The attempt is not parked while this block runs."""
        return contextlib.nullcontext() if self.made is None else self.made.parking.busy()

    @property
    def repeats(self) -> bool:
        """Does the handler repeat what this very attempt has done before it was parked?"""
        return self.made is not None and self.made.journal.repeats

    def get(self) -> Durable:
        """Raises `ConfigError` for a task that cannot make durable calls."""
        if self.made is None:
            if not self._settings.is_allowed:
                kind = self._attempt.claimed.execution_kind
                why = "a task that runs in a child process, or on batches, has no durable calls"
                raise ConfigError("task", kind, why)
            self.made = Durable(
                self._attempt, self._settings, self._services, self._transaction, self._stored
            )
        return self.made
