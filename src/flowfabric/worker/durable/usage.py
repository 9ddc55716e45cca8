"""What a handler uses of a budget is counted once for each call, however often the handler runs."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

import msgspec

from flowfabric.budgets import budget_id, check_amounts, check_dedup_key
from flowfabric.engine.budgets.usage import (
    HardBreach,
    SoftBreach,
    UsageAlreadyApplied,
    UsageCounted,
    UsageOutcome,
)
from flowfabric.engine.journal.entry import MAX_NAME
from flowfabric.errors import BudgetExceeded, EntryDecodeError
from flowfabric.states import JournalKind, JournalState
from flowfabric.worker.durable.step_errors import not_recorded, recorded
from flowfabric.worker.durable.steps import current_step
from flowfabric.worker.durable.values import StoredValue

if TYPE_CHECKING:
    from flowfabric.worker.durable.durable import Durable

Send = Callable[[UUID, dict[str, int], str], Awaitable[UsageOutcome]]
"""Counts these amounts of a budget, under this key."""

_LONGEST_ITEM: Final = 100
_KINDS: Final[dict[str, type[Any]]] = {
    "ok": UsageCounted,
    "already_applied": UsageAlreadyApplied,
    "soft_breach": SoftBreach,
    "hard_breach": HardBreach,
}
_WORDS: Final = {kind: word for word, kind in _KINDS.items()}


class UsageCall:
    """One call of `ctx.use` or `ctx.spend`, with the key that it got when it was made.

    Inside the function of a step it is a part of the step: it counts whenever the function runs.
    Elsewhere its answer is an entry of the journal, so that a handler that runs again gets the same
    answer. The entry is written with the next one: a handler without other durable calls writes
    none, and counts again when it is tried again.
    """

    def __init__(
        self,
        durable: Callable[[], Durable],
        send: Send,
        verb: str,
        budget: UUID | str,
        amounts: Mapping[str, int],
        dedup: str | None,
    ) -> None:
        self._send, self._budget, self._id = send, budget, budget_id(budget)
        self._amounts, self._dedup = check_amounts(amounts), check_dedup_key(dedup, field="dedup")
        self._durable = None if current_step.get() is not None else durable()
        if self._durable is not None:
            name = f"{verb} {budget}".encode()[:MAX_NAME].decode(errors="ignore")
            self._key = self._durable.allot(name, _item(self._dedup))
            self._branch = self._durable.journal.branch

    async def outcome(self, *, raise_on_hard: bool) -> UsageOutcome:
        """The answer of the engine, now or in the run before; raises `BudgetExceeded`."""
        if self._durable is None:
            # The key is for this one call, which is repeated when the database does not answer.
            answer = await self._send(self._id, self._amounts, self._dedup or str(uuid4()))
            if raise_on_hard and isinstance(answer, HardBreach):
                raise self._exceeded(answer)
            return answer
        durable, journal = self._durable, self._durable.journal
        entry = journal.find(self._key, JournalKind.STEP)
        if entry is not None:
            answer = self._read(durable, StoredValue(entry.value, entry.encoding))
            if raise_on_hard and isinstance(answer, HardBreach):
                raise recorded(self._exceeded(answer))
            return answer
        await durable.frontier(self._key)
        dedup = self._dedup or durable.usage_key(self._key)
        answer = await self._send(self._id, self._amounts, dedup)
        write = journal.entry(self._key, JournalKind.STEP, JournalState.DONE, value=_stored(answer))
        durable.uses += 1
        if raise_on_hard and isinstance(answer, HardBreach):
            journal.failed(self._key, write, self._branch)
            raise not_recorded(self._exceeded(answer), self._key)
        journal.later(write)
        return answer

    def _exceeded(self, breach: HardBreach) -> BudgetExceeded:
        return BudgetExceeded(
            self._budget,
            dimension=breach.dimension,
            current_usage=breach.current_usage,
            hard_limit=breach.hard_limit,
        )

    def _read(self, durable: Durable, stored: StoredValue) -> UsageOutcome:
        try:
            read = msgspec.json.decode(stored.data or b"", type=dict[str, Any])
            return msgspec.convert(read, _KINDS[read.pop("outcome")])
        except (KeyError, msgspec.MsgspecError) as error:
            journal = durable.journal
            journal.divergence = EntryDecodeError(self._key.name, "an answer", str(error))
            raise journal.divergence from error


def _item(dedup: str) -> str | None:
    """The key as an entry can have it, which is shorter than a key may be and printable."""
    if not dedup:
        return None
    if len(dedup.encode()) <= _LONGEST_ITEM and dedup.isprintable():
        return dedup
    return hashlib.sha256(dedup.encode()).hexdigest()


def _stored(answer: UsageOutcome) -> StoredValue:
    facts = {"outcome": _WORDS[type(answer)], **msgspec.structs.asdict(answer)}
    return StoredValue(msgspec.json.encode(facts), "json")
