"""The journal of one attempt: what is recorded, what the handler asked for, what is to be written.

Entries are found by their keys. A finished entry answers its call without running anything. While
recorded entries are left that the handler has not asked for, the handler is replaying.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from flowfabric.counters import REPLAYED_ENTRIES
from flowfabric.engine.journal.entry import EntryWrite, JournalEntry
from flowfabric.engine.journal.kept_entries import Mark
from flowfabric.errors import EntryDecodeError, JournalFull, NonDeterministicReplay
from flowfabric.ids import ExecutionId
from flowfabric.instants import epoch_ms, instant, seconds_since
from flowfabric.states import JournalKind, JournalState
from flowfabric.worker.durable.keys import (
    NO_BRANCH,
    Branch,
    EntryKey,
    Occurrences,
    current_branch,
)
from flowfabric.worker.durable.settings import (
    ADVISED_BYTES,
    ADVISED_ENTRIES,
    MAX_ENTRIES,
    MAX_JOURNAL_BYTES,
    DurableSettings,
)
from flowfabric.worker.durable.step_errors import ERROR, StoredError, unrecorded
from flowfabric.worker.durable.values import StoredValue

if TYPE_CHECKING:
    from flowfabric.engine.journal.read_journal import Journal
    from flowfabric.worker.running_attempt import RunningAttempt

_MAY_BE_LEFT: Final = frozenset(
    {JournalKind.NOW, JournalKind.PATCH, JournalKind.VERSION, JournalKind.MARK}
)
"""Entries that a handler need not ask for again."""
_SHOWN: Final = 20

_began = lru_cache(maxsize=64)(instant)
"""Many entries of a process begin in the same millisecond."""

Write = Callable[[Sequence[EntryWrite]], Coroutine[Any, Any, None]]
KnownEntry: TypeAlias = JournalEntry | EntryWrite
"""An entry that was read, or one that this run of the handler writes."""


class _Decided(msgspec.Struct, frozen=True):
    succeeded: list[str] = []
    lost: list[str] = []


class _Failed(NamedTuple):
    """A failure that its handler may yet get over: then it is recorded."""

    key: EntryKey
    write: EntryWrite
    branch: Branch
    """The branch of the handler that made the call."""
    is_own: bool
    """Was it raised in the task of the handler, and not in one that the handler has begun?"""


class AttemptJournal:
    """The entries of one execution, as one run of its handler sees and writes them."""

    def __init__(
        self,
        attempt: RunningAttempt,
        settings: DurableSettings,
        stored: Journal | None,
        write: Write,
    ) -> None:
        self._attempt, self._settings, self._write = attempt, settings, write
        self._claimed_ms = epoch_ms(attempt.claimed.claimed_at)
        self._answered_at = attempt.answered_at
        self.occurrences = Occurrences(attempt.slot)
        self.entries: dict[EntryKey, KnownEntry] = {}
        self.generation = 0
        self._again: set[EntryKey] = set()
        """The calls that a replay dropped, although later ones are recorded."""
        self._anew: set[EntryKey] = set()
        """Those of them that this run has made."""
        self._unvisited: dict[EntryKey, None] = {}
        self._names: dict[str, int] = {}
        self._repeated = 0
        self._asked: deque[EntryKey] = deque(maxlen=_SHOWN)
        self._caught_up = asyncio.Event()
        self._next_seq, self._count, self._size = 1, 0, 0
        self.branch = NO_BRANCH
        """The branch of the handler that made the last call."""
        self._later: list[EntryWrite] = []
        self._failed: list[_Failed] = []
        self.divergence: NonDeterministicReplay | EntryDecodeError | None = None
        if stored is not None:
            self._load(stored.entries)
        self._began_before = bool(self.entries)
        if not self._unvisited:
            self._caught_up.set()

    def _load(self, stored: Sequence[JournalEntry]) -> None:
        for entry in stored:
            self._next_seq = max(self._next_seq, entry.seq + 1)
            self._count += 1
            self._size += len(entry.value or b"")
            if entry.kind is JournalKind.MARK:
                mark = Mark.decode(entry.value)
                self.generation = mark.generation
                self._again = {EntryKey(*each) for each in mark.again}
                continue
            key = EntryKey(entry.name, entry.item, entry.occurrence)
            self.entries[key] = entry
            self._names[entry.name] = self._names.get(entry.name, 0) + 1
            if entry.kind not in _MAY_BE_LEFT:
                self._unvisited[key] = None
                self._repeated += self._is_own(entry)

    def _is_own(self, entry: KnownEntry) -> bool:
        return (
            isinstance(entry, EntryWrite)
            or entry.attempt_index == self._attempt.lease.attempt_index
        )

    # Time.

    @property
    def now_ms(self) -> int:
        """The clock of the database: the instant of the claim, and what has passed since.

        Behind that clock by no more than the answer to the claim took, and never before it.
        """
        return self._claimed_ms + int(seconds_since(self._answered_at) * 1000)

    @property
    def now(self) -> datetime:
        return instant(self.now_ms)

    # Replay.

    @property
    def replaying(self) -> bool:
        """Are recorded entries left that the handler has not asked for?"""
        return bool(self._unvisited)

    @property
    def repeats(self) -> bool:
        """Does the handler repeat what this very attempt has done before it was parked?"""
        return self._repeated > 0

    @property
    def began_before(self) -> bool:
        """Did an earlier run of the handler record something?"""
        return self._began_before

    @property
    def unvisited(self) -> list[str]:
        """The entries that the handler has not asked for."""
        return [str(key) for key in self._unvisited]

    @property
    def restart_advised(self) -> bool:
        """Is the journal so long that the handler should begin anew?"""
        return self._count >= ADVISED_ENTRIES or self._size >= ADVISED_BYTES

    def is_repeated(self, name: str) -> bool:
        """Does the journal have several entries of this name, told apart by their order alone?"""
        return self._names.get(name, 0) > 1

    def named_children(self) -> list[ExecutionId]:
        """The children whose joins were decided, as far as the journal names them."""
        found: list[ExecutionId] = []
        for entry in self.entries.values():
            if entry.kind is JournalKind.CHILDREN and entry.value and entry.encoding != ERROR:
                decision = msgspec.json.decode(entry.value, type=_Decided)
                found += map(ExecutionId.parse, (*decision.succeeded, *decision.lost))
        return found

    def find(self, key: EntryKey, kind: JournalKind) -> KnownEntry | None:
        """The recorded entry of a call; raises `NonDeterministicReplay` if it is another call's."""
        self.check()
        self._asked.append(key)
        entry = self.entries.get(key)
        if entry is None:
            return None
        if entry.kind is not kind:
            raise self.diverge(f"{key} as {kind}", recorded=f"{key} as {entry.kind}")
        if key in self._unvisited:
            REPLAYED_ENTRIES.add()
            del self._unvisited[key]
            self._repeated -= self._is_own(entry)
            if not self._unvisited:
                self._caught_up.set()
        return entry

    def check_fingerprint(self, entry: KnownEntry, fingerprint: int | None) -> None:
        """Raise `NonDeterministicReplay` if the call had other arguments when it was recorded."""
        if None not in (entry.fingerprint, fingerprint) and entry.fingerprint != fingerprint:
            key = EntryKey(entry.name, entry.item, entry.occurrence)
            raise self.diverge(f"{key} with other arguments", recorded=str(key))

    @property
    def is_frontier(self) -> bool:
        """May a new call go on at once? Raises `JournalFull` if the journal takes no more."""
        self._check_room()
        return not self._unvisited or self._settings.replay == "by_name"

    async def caught_up(self, key: EntryKey) -> None:
        """Wait until every recorded entry has been asked for: `key` is a new call.

        Raises `NonDeterministicReplay` if some are left after a while: they would be done twice
        under other names. A call that a replay dropped goes on at once: later ones are recorded.
        """
        if key in self._again:
            self._anew.add(key)
            return
        while True:
            mended = self._is_mending
            try:
                async with asyncio.timeout(self._settings.replay_patience):
                    await self._caught_up.wait()
                return
            except TimeoutError:
                self.check()
                if not mended and not self._is_mending:
                    raise self.diverge(str(key)) from None

    @property
    def _is_mending(self) -> bool:
        """Is a call on its way that a replay dropped? Recorded ones may follow it."""
        known = [self.entries.get(key) for key in self._anew]
        return any(entry is None or entry.state is JournalState.OPEN for entry in known)

    def diverge(self, asked: str, *, recorded: str | None = None) -> NonDeterministicReplay:
        """The error of a handler that makes other calls than before; it decides the outcome."""
        before = [str(key) for key in self.entries if key not in self._unvisited]
        left = [recorded] if recorded is not None else self.unvisited
        half = _SHOWN // 2
        self.divergence = NonDeterministicReplay(
            self._attempt.execution_id,
            recorded=[*before[-half:], *left[:half]],
            asked=[*map(str, [*self._asked][:-1]), asked],
        )
        return self.divergence

    def check(self) -> None:
        """Raise the divergence that was found before, also if the handler swallowed it."""
        if self.divergence is not None:
            raise self.divergence

    # Writing.

    def entry(
        self,
        key: EntryKey,
        kind: JournalKind,
        state: JournalState,
        *,
        value: StoredValue | StoredError | None = None,
        started_ms: int | None = None,
        due_ms: int | None = None,
        fingerprint: int | None = None,
        signal_seq: int | None = None,
        tries: int = 1,
    ) -> EntryWrite:
        """An entry to write: over an open one of its key, or the next; raises `JournalFull`."""
        before = self.entries.get(key)
        if before is None:
            self._check_room()
            seq, self._next_seq = self._next_seq, self._next_seq + 1
            self._count += 1
        else:
            seq = before.seq
        match value:
            case StoredError():
                data, encoding = value.encode(), ERROR
            case StoredValue():
                data, encoding = value.data, value.encoding
            case None:
                data = encoding = None
        self._size += len(data or b"")
        write = EntryWrite(
            lease=self._attempt.lease,
            seq=seq,
            kind=kind,
            state=state,
            name=key.name,
            item=key.item,
            occurrence=key.occurrence,
            started_at=_began(self.now_ms if started_ms is None else started_ms),
            due_at=None if due_ms is None else instant(due_ms),
            fingerprint=fingerprint,
            signal_seq=signal_seq,
            tries=tries,
            encoding=encoding,
            value=data,
        )
        self.entries[key] = write
        return write

    def opening(
        self, key: EntryKey, kind: JournalKind, *, due_ms: int | None, tries: int = 1, **more: Any
    ) -> EntryWrite | None:
        """The open entry of a wait; None if it is written already."""
        before = self.entries.get(key)
        if before is not None and before.state is JournalState.OPEN:
            written_due = None if before.due_at is None else epoch_ms(before.due_at)
            if (written_due, before.tries) == (due_ms, tries):
                return None
        return self.entry(key, kind, JournalState.OPEN, due_ms=due_ms, tries=tries, **more)

    def _check_room(self) -> None:
        if self._count >= MAX_ENTRIES or self._size > MAX_JOURNAL_BYTES:
            raise JournalFull(self._count, self._size)

    def later(self, write: EntryWrite) -> None:
        """Write the entry with the next flush."""
        self._later.append(write)

    def failed(self, key: EntryKey, write: EntryWrite, branch: Branch) -> None:
        """A call failed: recorded once the handler has got over it, and not if it ends by it."""
        is_own = asyncio.current_task() is self._attempt.slot
        self._failed.append(_Failed(key, write, branch, is_own))

    def call_begins(self) -> Branch:
        """The branch of the handler that makes a call now: it has got over its failures."""
        self.branch = branch = current_branch()
        if self._failed:
            self._got_over([each for each in self._failed if branch.is_above(each.branch)])
        return branch

    def parks(self) -> None:
        """The handler waits: it has got over every failure."""
        self._got_over(list(self._failed))

    def _got_over(self, failures: Sequence[_Failed]) -> None:
        for each in failures:
            self._failed.remove(each)
            self._later.append(each.write)

    @property
    def has_unwritten(self) -> bool:
        """Do entries wait for a flush?"""
        return bool(self._later)

    def unwritten(self, *writes: EntryWrite) -> list[EntryWrite]:
        """These entries, after those that wait for a flush."""
        return [*self._later, *writes]

    def record(self, *writes: EntryWrite) -> Coroutine[Any, Any, None]:
        """Write these entries, and those that wait for a flush; ends once they are committed."""
        if not self._later:
            return self._write(writes)
        return self._write_all([*self._later], writes)

    async def _write_all(self, later: list[EntryWrite], writes: Sequence[EntryWrite]) -> None:
        """Write both; the first wait on until they are committed.

        So a step of another branch, which begins meanwhile, waits for their commit too, and a flush
        that is cancelled leaves them to the next one.
        """
        await self._write([*later, *writes])
        self.committed(later)

    def committed(self, writes: Sequence[EntryWrite]) -> None:
        """These entries do not wait for a flush any more."""
        written = set(map(id, writes))
        self._later = [each for each in self._later if id(each) not in written]

    async def flush(self, ended_by: BaseException | None) -> None:
        """The handler has ended: write what waits for a flush; but not the failure that ended it.

        A handler that has returned has got over its failures. One that ended by something else has
        got over those that were raised in its own task: of several that failed beside each other it
        may have seen the first only.
        """
        left = unrecorded(ended_by)
        self._got_over(
            [
                each
                for each in self._failed
                if ended_by is None or (each.is_own and each.key not in left)
            ]
        )
        self._failed.clear()
        await self.record()
