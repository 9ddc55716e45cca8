"""The calls of a handler for children, as methods of its context."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, Literal, TypeVar, overload

from flowfabric.budgets import GivenBudgets, OwnBudgets
from flowfabric.errors import ChildFailed
from flowfabric.joins import Disposition
from flowfabric.worker.child_batch import Child, ChildCall
from flowfabric.worker.durable.children import Children

T = TypeVar("T")


class ChildCalls:
    """Child executions. While a handler waits for children its attempt may be parked.

    Once the join is decided the handler runs again, from the top, and each call finds its children
    by its name, or its position among these calls.
    """

    __slots__ = ()

    def _own_children(self) -> Children:
        """The calls for children of this attempt."""
        raise NotImplementedError

    @overload
    def gather(
        self,
        calls: Iterable[ChildCall[T]],
        *,
        concurrency: int | None = None,
        return_exceptions: Literal[False] = False,
        name: str | None = None,
        budget: GivenBudgets | OwnBudgets | None = None,
    ) -> Coroutine[Any, Any, list[T]]: ...
    @overload
    def gather(
        self,
        calls: Iterable[ChildCall[T]],
        *,
        concurrency: int | None = None,
        return_exceptions: bool,
        name: str | None = None,
        budget: GivenBudgets | OwnBudgets | None = None,
    ) -> Coroutine[Any, Any, list[T | ChildFailed]]: ...
    def gather(
        self,
        calls: Iterable[ChildCall[Any]],
        *,
        concurrency: int | None = None,
        return_exceptions: bool = False,
        name: str | None = None,
        budget: GivenBudgets | OwnBudgets | None = None,
    ) -> Coroutine[Any, Any, list[Any]]:
        """Run the calls as children and return their results, in the order given.

        The first child that fails raises `ChildFailed` at once, while the others keep running. With
        `return_exceptions` all children are waited for, and errors are returned among the results.
        With `concurrency` at most that many children run at a time: the next one starts when
        another ends, and after a failure no further child is started. With `budget` the children
        are attached to these budgets too; `budget=ctx.budgets` are those of this execution.
        """
        children = self._own_children()
        gather = children.gather_outcomes if return_exceptions else children.gather
        return gather(children.next_batch(calls, name, budget), concurrency)

    def race(
        self,
        *calls: ChildCall[T],
        name: str | None = None,
        budget: GivenBudgets | OwnBudgets | None = None,
    ) -> Coroutine[Any, Any, T]:
        """The result of the first child that succeeds; the others are cancelled.

        Those give back what they have spent by `ctx.spend`. `budget` is as in `gather`.

        Raises `ChildFailed` when all have failed.
        """
        children = self._own_children()
        return children.race(children.next_batch(calls, name, budget))

    def quorum(
        self,
        k: int,
        calls: Iterable[ChildCall[T]],
        *,
        on_satisfied: Disposition = "cancel_remaining",
        name: str | None = None,
        budget: GivenBudgets | OwnBudgets | None = None,
    ) -> Coroutine[Any, Any, list[T]]:
        """The results of the first `k` children that succeed, in the order of the calls.

        The others are cancelled, or with `let_run` keep running. Raises `ChildFailed` as soon as
        too many have failed.
        """
        children = self._own_children()
        return children.quorum(k, children.next_batch(calls, name, budget), on_satisfied)

    def spawn(
        self,
        call: ChildCall[T],
        *,
        detached: bool = False,
        name: str | None = None,
        budget: GivenBudgets | OwnBudgets | None = None,
    ) -> Coroutine[Any, Any, Child[T]]:
        """Start a child and continue; `await child.result()` waits for it.

        A detached child is not cancelled with its parent, and its parent cannot wait for it.
        """
        children = self._own_children()
        return children.spawn(children.next_batch([call], name, budget), detached=detached)
