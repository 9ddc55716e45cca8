"""The keys of durable calls: name, item, and which call of that name it is."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any, Final, NamedTuple

from flowfabric.engine.journal.entry import check_entry_name, entry_key
from flowfabric.errors import StepNeedsKey, invalid_input
from flowfabric.ids import check_name

VERSION: Final = "ff.version"
"""The name of the entry that holds the version of the task."""


class EntryKey(NamedTuple):
    """The same call has the same key whenever the handler runs."""

    name: str
    item: str
    occurrence: int

    def __str__(self) -> str:
        return entry_key(self.name, self.item, self.occurrence)


class Branch:
    """A task of a handler that makes durable calls, and the one in which that task was begun."""

    __slots__ = ("above", "task")

    def __init__(self, task: asyncio.Task[Any] | None, above: Branch | None) -> None:
        self.task, self.above = task, above

    def is_above(self, other: Branch) -> bool:
        """Is the other one this branch, or was it begun in this one, or below?"""
        link: Branch | None = other
        while link is not None:
            if link is self:
                return True
            link = link.above
        return False


NO_BRANCH: Final = Branch(None, None)
"""Stands for the branch of an attempt that has made no call."""

_branch: contextvars.ContextVar[Branch | None] = contextvars.ContextVar(
    "flowfabric_branch", default=None
)


def current_branch() -> Branch:
    """The branch that makes a durable call now; tasks that it begins are below it."""
    task, branch = _caller(), _branch.get()
    if branch is None or branch.task is not task:
        branch = Branch(task, branch)
        _branch.set(branch)
    return branch


class Occurrences:
    """Numbers the calls of one run of a handler, in the order in which they are made."""

    def __init__(self, own: asyncio.Task[Any] | None) -> None:
        self._own = own
        self._counts: dict[tuple[str, str], int] = {}
        self._callers: dict[str, asyncio.Task[Any] | None] = {}

    def allot(self, name: str, item: str | None, caller: asyncio.Task[Any] | None) -> EntryKey:
        """The key of the next call of this name and item.

        Raises `StepNeedsKey` if another task of the handler, which still runs, makes calls of this
        name too, and `ValidationError` for a name or item that cannot be stored.
        """
        check_entry_name(name)
        if name == VERSION:
            raise invalid_input("name", name, "is the name under which the version is recorded")
        if item is None:
            self._check_order(name, caller)
        else:
            check_name(item, field="key")
        place = (name, item or "")
        number = self._counts.get(place, 0)
        self._counts[place] = number + 1
        return EntryKey(*place, number)

    def _check_order(self, name: str, caller: asyncio.Task[Any] | None) -> None:
        last = self._callers.get(name)
        if last is not None and last is not caller and last is not self._own and not last.done():
            raise StepNeedsKey(name)
        self._callers[name] = caller


def _caller() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # in the thread of a plain handler
        return None
