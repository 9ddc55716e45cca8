"""How a worker runs executions of one kind, and how exceptions become failures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, cast

import msgspec

from flowfabric.db.faults import find_trouble
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.release_after_trouble import Trouble
from flowfabric.errors import (
    BUDGET_HARD_BREACH,
    HANDLER_ERROR,
    HANDLER_PANIC,
    BudgetExceeded,
    ChildFailed,
    Fail,
    FlowFabricError,
    JournalFull,
    NeedsDatabase,
    ResultDecodeError,
    RetryLater,
    StepFailed,
)
from flowfabric.states import FailureClass
from flowfabric.wire import read_untyped
from flowfabric.worker.context import Ctx
from flowfabric.worker.durable.settings import DurableSettings
from flowfabric.worker.durable.step_errors import RECORDED
from flowfabric.worker.stored_traceback import stored_traceback
from flowfabric.worker.upstreams import ResultReader

_CHAIN: Final = 8
"""How many causes of an error its reason shows."""
_NOT_RAISABLE: Final = "exceptions must derive from BaseException"
"""Python's message when a handler raises a value that is no exception, such as `Retry`."""


class EncodedResult(msgspec.Struct, frozen=True, gc=False):
    """The result of a handler as bytes, and their encoding; None: that of the payload."""

    data: bytes | None = None
    encoding: str | None = None


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """Runs executions of one kind."""

    kind: str
    run: Callable[[Ctx, bytes, str | None], Awaitable[EncodedResult]]
    """Takes the context, the payload and its encoding; returns the encoded result."""
    read_result: ResultReader = read_untyped
    """Decodes results of this kind, for the handlers of downstreams."""
    retry_on: tuple[type[BaseException], ...] = ()
    no_retry_on: tuple[type[BaseException], ...] = ()
    durable: DurableSettings = DurableSettings()
    """How its durable calls behave."""


class Reported(FlowFabricError):
    """How a task that ran in a child process failed, or which trouble stopped it."""

    def __init__(self, outcome: Failure | Trouble) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


def outcome_of(
    error: BaseException, lease: Lease, handler: Handler | None, *, connection_lost: bool = False
) -> Failure | Trouble:
    """What to record for an exception of a handler: trouble with the database is no failure.

    With `connection_lost` the connection of the handler's transaction is closed.
    """
    if isinstance(error, Reported):
        return error.outcome
    if not isinstance(error, Fail | RetryLater):  # these are the handler's own decision
        trouble = find_trouble(error, connection_lost=connection_lost)
        if trouble is not None:
            return Trouble(lease=lease, reason=_text(trouble) or type(trouble).__name__)
    return failure_of(error, lease, handler)


def failure_of(error: BaseException, lease: Lease, handler: Handler | None) -> Failure:
    """The failure to record for an exception of a handler."""
    if isinstance(error, Fail):
        return Failure(
            lease=lease,
            reason=_text(error.reason) or "the handler failed",
            category=_text(error.category) or HANDLER_ERROR,
            failure_class=_explicit_class(error),
            detail=stored_traceback(error) if error.__cause__ else None,
            error_type=type(error).__name__,
        )
    if isinstance(error, RetryLater):
        return Failure(
            lease=lease,
            reason=_text(error.reason),
            category="retry",
            failure_class=FailureClass.TRANSIENT,
            retry_after=error.after,
            error_type=type(error).__name__,
        )
    told = _of_step(error)
    if isinstance(told, RetryLater):
        return failure_of(told, lease, handler)
    permanent = handler is None or (
        isinstance(told, handler.no_retry_on)
        or (bool(handler.retry_on) and not isinstance(told, handler.retry_on))
        # A retry finds the same child, with the same result; the same failed step.
        or (not handler.retry_on and isinstance(error, ChildFailed | ResultDecodeError))
        or (not handler.retry_on and isinstance(told, BudgetExceeded))
        or _ends_for_good(error)
    )
    category = HANDLER_ERROR if isinstance(error, Exception) else HANDLER_PANIC
    failure_class = FailureClass.PERMANENT if permanent else FailureClass.TRANSIENT
    if isinstance(error, BudgetExceeded):
        category = BUDGET_HARD_BREACH
    if isinstance(error, StepFailed) and error.category != HANDLER_ERROR:
        category = error.category
        if not permanent and handler is not None and not handler.retry_on:
            failure_class = FailureClass.of(category)
    return Failure(
        lease=lease,
        reason=_chain(error),
        category=category,
        failure_class=failure_class,
        detail=stored_traceback(error),
        error_type=type(error).__name__,
    )


def _of_step(error: BaseException) -> BaseException:
    """The error that the function of a step raised, behind the `StepFailed` of its handler."""
    if isinstance(error, StepFailed) and error.__cause__ is not None:
        return error.__cause__
    return error


def _ends_for_good(error: BaseException) -> bool:
    """Would a retry find the same: a recorded failure, a full journal, no database to reach?"""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return any(_ends_for_good(each) for each in group.exceptions)
    return isinstance(error, JournalFull | NeedsDatabase) or getattr(error, RECORDED, False)


def _explicit_class(error: Fail) -> FailureClass | None:
    if error.may_retry is None:
        return None
    return FailureClass.TRANSIENT if error.may_retry else FailureClass.PERMANENT


def _chain(error: BaseException) -> str:
    """The error and its causes, each with its type, joined by a colon."""
    parts: list[str] = []
    link: BaseException | None = error
    while link is not None and len(parts) < _CHAIN:
        text = _text(link)
        parts.append(f"{type(link).__name__}: {text}" if text else type(link).__name__)
        if text == _NOT_RAISABLE and isinstance(link, TypeError):
            parts.append("a handler raises RetryLater to be tried again; Retry is a task's policy")
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return ": ".join(parts)


def _text(value: object) -> str:
    """`str(value)`, also where the user's `__str__` raises."""
    try:
        return str(value)
    except Exception as error:
        return f"(without a text: {type(error).__name__})"
