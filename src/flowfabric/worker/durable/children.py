"""How a handler starts child executions, and waits for them without holding a slot."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from flowfabric.budgets import GivenBudgets, OwnBudgets, budget_names
from flowfabric.errors import ChildFailed, invalid_input
from flowfabric.ids import ExecutionId, GroupId, PartitionKey
from flowfabric.joins import AllOf, AnyOf, Disposition, JoinPolicy, Quorum
from flowfabric.states import GroupState, JournalKind, JournalState, PublicState
from flowfabric.worker.child_batch import (
    Child,
    ChildBatch,
    ChildCall,
    check_calls,
    child_failed,
)
from flowfabric.worker.durable.awaited import Awaited
from flowfabric.worker.durable.keys import current_branch
from flowfabric.worker.durable.step_errors import StoredError, not_recorded
from flowfabric.worker.durable.values import StoredValue
from flowfabric.worker.repeat_while_leased import repeat_while_leased

if TYPE_CHECKING:
    from flowfabric.engine.executions.read_outcomes import ExecutionOutcome
    from flowfabric.engine.joins.read_join import Join
    from flowfabric.engine.joins.read_window import ChildWindow
    from flowfabric.engine.journal.entry import EntryWrite
    from flowfabric.worker.durable.durable import Durable
    from flowfabric.worker.durable.journal import KnownEntry
    from flowfabric.worker.durable.keys import EntryKey

R = TypeVar("R")
T = TypeVar("T")

CHILDREN: Final = "children"
"""The name of calls for children that have none of their own."""
_REPLAYED_CHILD_DELAY: Final = 1.0
"""After how many seconds an attempt checks again a child that was replayed."""


class JoinDecision(msgspec.Struct, frozen=True):
    """How a join was decided, as the journal holds it: the children that succeeded, and others."""

    satisfied: bool
    succeeded: list[str]
    lost: list[str]


class Calls(Generic[R]):
    """The calls of one `gather`, `race`, `quorum` or `spawn`, with the key of its entry."""

    def __init__(self, key: EntryKey, batch: ChildBatch[R], *, inherits: bool = False) -> None:
        self.key, self.batch = key, batch
        self.inherits = inherits
        """Are the children attached to the budgets of their parent, which are still to be read?"""
        self.branch = current_branch()
        self.asked = False
        """Has the journal been asked for the entry?"""

    @property
    def fingerprint(self) -> int:
        """crc32 over the kinds and payloads of the calls, in order."""
        digest = 0
        for call in self.batch.calls.values():
            digest = zlib.crc32(call.task.kind.encode() + b"\x00" + call.payload, digest)
        return digest


class Children:
    """The calls for children of one running attempt; each is an entry of the journal."""

    def __init__(self, durable: Durable) -> None:
        self._durable, self._attempt = durable, durable.attempt
        self._engine, self._lease = durable.services.engine, durable.attempt.lease

    def next_batch(
        self,
        calls: Iterable[ChildCall[R]],
        name: str | None = None,
        budget: GivenBudgets | OwnBudgets | None = None,
    ) -> Calls[R]:
        """The children of the next call, found again by its name or its place."""
        inherits = isinstance(budget, OwnBudgets)
        budgets = () if inherits else budget_names(budget)
        given = check_calls(calls)
        key = self._durable.allot(name or CHILDREN)
        batch = ChildBatch(
            self._lease.execution_id,
            key.occurrence,
            given,
            generation=self._durable.journal.generation,
            name=name,
        )
        batch.budgets = budgets
        return Calls(key, batch, inherits=inherits)

    async def gather(self, calls: Calls[R], concurrency: int | None = None) -> list[R]:
        """The results of all children; raises `ChildFailed` as soon as one has failed."""
        batch = calls.batch
        if not batch.calls:
            return []
        if concurrency is None:
            return await self._all(calls)
        lost = await self._run_window(calls, concurrency, until_failure=True)
        if lost:
            raise await self._failure_of(calls, lost[0])
        return [batch.result(outcome) for outcome in await self._outcomes(batch.calls)]

    async def gather_outcomes(
        self, calls: Calls[R], concurrency: int | None = None
    ) -> list[R | ChildFailed]:
        """The result or the error of each child, once all have ended."""
        batch = calls.batch
        if not batch.calls:
            return []
        if concurrency is not None:
            await self._run_window(calls, concurrency, until_failure=False)
        else:
            # A quorum of more than all children is decided when the last child has ended.
            await self._decided(calls, Quorum(len(batch.calls) + 1, "let_run"))
        return [
            batch.result(outcome)
            if outcome.public_state is PublicState.COMPLETED
            else child_failed(outcome)
            for outcome in await self._outcomes(batch.calls)
        ]

    async def race(self, calls: Calls[R]) -> R:
        """The result of the first child that succeeds."""
        if not calls.batch.calls:
            raise invalid_input("calls", 0, "must be at least one to race")
        [winner] = await self._first(calls, 1, AnyOf())
        return winner

    async def quorum(self, k: int, calls: Calls[R], on_satisfied: Disposition) -> list[R]:
        """The results of the first `k` children that succeed."""
        policy = Quorum(k, on_satisfied)
        if k > len(calls.batch.calls):
            raise invalid_input("k", k, f"is more than the {len(calls.batch.calls)} calls")
        return await self._first(calls, k, policy)

    async def spawn(self, calls: Calls[R], *, detached: bool) -> Child[R]:
        """Start a child that runs while its parent continues."""
        [execution_id] = calls.batch.calls
        entry = await self._entry_of(calls)
        if entry is None:
            await self._spawned(calls, None if detached else AllOf())
        elif not detached:
            self._attempt.has_children = True

        async def result() -> R:
            if detached:
                raise invalid_input(
                    "child", str(execution_id), "is detached and cannot be waited for"
                )
            [only] = await self._all(calls)
            return only

        return Child(execution_id, result, group=None if detached else calls.batch.group)

    async def _all(self, calls: Calls[R]) -> list[R]:
        decision = await self._decided(calls, AllOf(), raises=True)
        if not decision.satisfied:
            raise await self._first_failure(calls, decision)
        outcomes = await self._outcomes(calls.batch.calls)
        return [calls.batch.result(outcome) for outcome in outcomes]

    async def _first(self, calls: Calls[R], k: int, policy: JoinPolicy) -> list[R]:
        """The results of the first `k` children that succeeded, in the order of the calls."""
        decision = await self._decided(calls, policy, raises=True)
        if not decision.satisfied:
            raise await self._first_failure(calls, decision)
        first = decision.succeeded[:k]
        wanted = [each for each in calls.batch.calls if str(each) in first]
        return [calls.batch.result(outcome) for outcome in await self._outcomes(wanted)]

    async def _entry_of(self, calls: Calls[Any]) -> KnownEntry | None:
        """The recorded entry of the call; raises `NonDeterministicReplay` for other children."""
        journal = self._durable.journal
        if calls.asked:
            return journal.entries.get(calls.key)
        entry = journal.find(calls.key, JournalKind.CHILDREN)
        calls.asked = True
        if entry is None:
            await self._durable.frontier(calls.key)
            return None
        if calls.key.name == CHILDREN:
            journal.check_fingerprint(entry, calls.fingerprint)
        return entry

    async def _decided(
        self, calls: Calls[R], policy: JoinPolicy, *, raises: bool = False
    ) -> JoinDecision:
        """How the join of the batch was decided; while it is pending the attempt may be parked.

        With `raises` a join that was not satisfied raises: it is recorded only if the handler gets
        over that.
        """
        entry = await self._entry_of(calls)
        if entry is not None and entry.state is not JournalState.OPEN:
            return self._recorded(calls, entry)
        join = await self._spawned(calls, policy)
        count = len(calls.batch.calls)
        awaited = Awaited(
            detail=f"waits for {count} children" if count > 1 else "waits for a child",
            joins=(calls.batch.group,),
        )
        while join is None or join.group_state is GroupState.PENDING:
            await self._durable.parking.until_changed(awaited)
            with self._durable.parking.busy():
                join = await self._repeated(lambda: self._engine.read_join(calls.batch.group))
        decision = JoinDecision(
            join.group_state is GroupState.SATISFIED,
            [str(each) for each in join.succeeded],
            [str(each) for each in join.lost],
        )
        self._note(calls, decision, raises=raises)
        return decision

    def _recorded(self, calls: Calls[Any], entry: KnownEntry) -> JoinDecision:
        """The decision in a finished entry."""
        self._attempt.has_children = True
        if entry.state is JournalState.FAILED:
            state = self._durable.decode_error(entry).state
            return JoinDecision(False, state.get("succeeded", []), state.get("lost", []))
        stored = StoredValue(entry.value, entry.encoding)
        return self._durable.decode(calls.key, stored, JoinDecision)

    def _note(self, calls: Calls[Any], decision: JoinDecision, *, raises: bool) -> None:
        journal = self._durable.journal
        if decision.satisfied or not raises:
            value = StoredValue(msgspec.json.encode(decision), "json")
            journal.later(self._entry(calls, JournalState.DONE, value))
            return
        fault = StoredError(
            error_type=ChildFailed.__name__,
            category="child_failed",
            reason=f"{len(decision.lost)} of {len(calls.batch.calls)} children did not succeed",
            state={"succeeded": decision.succeeded, "lost": decision.lost},
        )
        write = self._entry(calls, JournalState.FAILED, fault)
        journal.failed(calls.key, write, calls.branch)

    def _entry(
        self,
        calls: Calls[Any],
        state: JournalState,
        value: StoredValue | StoredError | None = None,
    ) -> EntryWrite:
        return self._durable.journal.entry(
            calls.key, JournalKind.CHILDREN, state, value=value, fingerprint=calls.fingerprint
        )

    async def _spawned(self, calls: Calls[R], policy: JoinPolicy | None) -> Join | None:
        """Create the children, and the join of the parent unless `policy` is None (detached)."""
        batch = calls.batch
        await self._inherit(calls)
        executions = [batch.execution(child) for child in batch.calls]
        group = None if policy is None else batch.group
        await self._durable.flush()
        entry = self._entry(calls, JournalState.DONE if policy is None else JournalState.OPEN)
        join = await self._durable.fenced(
            lambda: self._engine.spawn_children(
                self._lease, executions, group=group, policy=policy, entry=entry
            )
        )
        if policy is not None:
            self._attempt.has_children = True
        return join

    async def _inherit(self, calls: Calls[Any]) -> None:
        """The children of a call that says so get the budgets of this execution."""
        if calls.inherits:
            own = self._lease.execution_id
            where = PartitionKey("fp", own.partition_key)
            with self._durable.parking.busy():
                read = await self._repeated(
                    lambda: self._engine.read_exec_core_fields(where, own, ["budget_ids"])
                )
            found = msgspec.json.decode(read["budget_ids"] or "[]", type=tuple[str, ...])
            calls.batch.budgets = found
            calls.inherits = False

    async def _run_window(
        self, calls: Calls[R], concurrency: int, *, until_failure: bool
    ) -> list[ExecutionId]:
        """Run the children, `concurrency` at a time, until all have ended; those that failed.

        With `until_failure` returns as soon as one has failed. Each time some children have ended,
        others are started in their place.
        """
        _check_concurrency(concurrency)
        entry = await self._entry_of(calls)
        batch = calls.batch
        if entry is not None and entry.state is not JournalState.OPEN:
            return [ExecutionId.parse(each) for each in self._recorded(calls, entry).lost]
        groups = batch.groups()
        while True:
            window = await self._durable.fenced(
                lambda: self._engine.read_window(self._lease, groups)
            )
            ended = len(window.succeeded) + len(window.lost)
            if ended == len(groups) or (until_failure and window.lost):
                decision = JoinDecision(
                    not window.lost,
                    [str(each) for each in window.succeeded],
                    [str(each) for each in window.lost],
                )
                self._note(calls, decision, raises=until_failure)
                return list(window.lost)
            new = await self._start_next(calls, groups, window, concurrency)
            pending = [group for group, child in groups.items() if child in window.running]
            awaited = Awaited(
                detail=f"waits for {len(groups) - ended} of {len(groups)} children",
                joins=(*pending, *new),
            )
            await self._durable.parking.until_changed(awaited)

    async def _start_next(
        self,
        calls: Calls[R],
        groups: dict[GroupId, ExecutionId],
        window: ChildWindow,
        concurrency: int,
    ) -> list[GroupId]:
        await self._inherit(calls)
        known = {*window.running, *window.succeeded, *window.lost}
        missing = (
            (group, calls.batch.execution(child))
            for group, child in groups.items()
            if child not in known
        )
        new = dict(islice(missing, max(0, concurrency - len(window.running))))
        if new:
            await self._durable.flush()
            entry = self._entry(calls, JournalState.OPEN)
            await self._durable.fenced(
                partial(self._engine.spawn_apart, self._lease, new, entry=entry)
            )
            self._attempt.has_children = True
        return list(new)

    async def _repeated(self, operation: Callable[[], Awaitable[T]]) -> T:
        return await repeat_while_leased(self._attempt, operation)

    async def _outcomes(self, children: Iterable[ExecutionId]) -> list[ExecutionOutcome]:
        """The outcomes of these children, in this order.

        If one of them runs again, because it was replayed, the handler waits for a moment.
        """
        wanted = list(children)
        while True:
            with self._durable.parking.busy():
                found = await self._repeated(lambda: self._durable.outcomes(wanted))
            if len(found) == len(wanted):
                return [found[each] for each in wanted]
            due = self._durable.journal.now_ms + round(_REPLAYED_CHILD_DELAY * 1000)
            awaited = Awaited(detail="waits for a child that was replayed", due_ms=due)
            while self._durable.journal.now_ms < due:
                await self._durable.parking.until_changed(awaited)

    async def _first_failure(self, calls: Calls[Any], decision: JoinDecision) -> ChildFailed:
        """The error of the first child, in the order of the calls, that did not succeed."""
        lost = next(each for each in calls.batch.calls if str(each) in decision.lost)
        return await self._failure_of(calls, lost)

    async def _failure_of(self, calls: Calls[Any], child: ExecutionId) -> ChildFailed:
        with self._durable.parking.busy():
            found = await self._repeated(lambda: self._durable.outcomes([child]))
        outcome = found.get(child)
        if outcome is None or outcome.public_state is PublicState.COMPLETED:
            error = ChildFailed(child, "failed", "the child was replayed since it failed")
        else:
            error = child_failed(outcome)
        return not_recorded(error, calls.key)


def _check_concurrency(concurrency: object) -> None:
    if not isinstance(concurrency, int) or isinstance(concurrency, bool) or concurrency < 1:
        raise invalid_input("concurrency", concurrency, "must be a whole number of at least 1")
