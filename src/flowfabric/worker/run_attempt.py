"""Runs one attempt: whatever the handler returns or raises becomes an outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.release_after_trouble import Trouble
from flowfabric.errors import FlowFabricError, LeaseLost
from flowfabric.worker.attempt_suspended import AttemptSuspended
from flowfabric.worker.context import Ctx
from flowfabric.worker.durable.diverged import diverged
from flowfabric.worker.durable.durable import LazyDurable
from flowfabric.worker.durable.services import DurableServices
from flowfabric.worker.handler import Handler, Reported, failure_of, outcome_of
from flowfabric.worker.log_context import set_log_context
from flowfabric.worker.maintenance import expire_attempts
from flowfabric.worker.running_attempt import RunningAttempt
from flowfabric.worker.transaction import CommitUncertain, HandlerTransaction
from flowfabric.worker.transaction_pool import TransactionPool
from flowfabric.worker.upstreams import ResultReader

if TYPE_CHECKING:
    from flowfabric.engine.journal.read_journal import Journal
    from flowfabric.remote.engine_like import EngineLike
    from flowfabric.worker.durable.durable import Durable

log: Final = logging.getLogger("flowfabric.worker")


class Recorded(msgspec.Struct, frozen=True):
    """The outcome is in the database already: the handler's own transaction committed it."""


class _Diverged(NamedTuple):
    """The handler made other calls than before: that decides, whatever it returned or raised."""

    durable: Durable


HandlerOutcome: TypeAlias = Completion | Failure | Trouble | Recorded | None
"""How an attempt ends; for None there is nothing to record."""


async def run_attempt(
    attempt: RunningAttempt,
    handler: Handler,
    engine: EngineLike,
    state: SimpleNamespace,
    transactions: TransactionPool,
    readers: Mapping[str, ResultReader],
    services: DurableServices,
) -> HandlerOutcome:
    """Run the handler to its outcome; an attempt that was suspended to wait has none.

    `readers` decode the results of upstreams, by the kind of their tasks.
    """
    set_log_context(attempt.claimed)
    transaction = HandlerTransaction(transactions, attempt)
    try:
        stored: Journal | None = None
        # Nothing is recorded of an execution that nobody held before.
        if attempt.lease.lease_epoch > 1 and handler.durable.is_allowed:
            try:
                stored = await services.read_journal(attempt)
            except LeaseLost:
                return None
            except FlowFabricError as error:
                return outcome_of(error, attempt.lease, handler)
        durable = LazyDurable(attempt, handler.durable, services, transaction, stored)
        ctx = Ctx(attempt, engine, state, transaction, readers, durable, services.frames)
        outcome = await _outcome(attempt, handler, ctx, transaction, engine, durable, services)
        if isinstance(outcome, _Diverged):
            outcome = await diverged(outcome.durable)
    finally:
        if transaction.asked_for:
            await transaction.close()
    return None if attempt.suspended else outcome


async def _outcome(
    attempt: RunningAttempt,
    handler: Handler,
    ctx: Ctx,
    transaction: HandlerTransaction,
    engine: EngineLike,
    durable: LazyDurable,
    services: DurableServices,
) -> HandlerOutcome | _Diverged:
    claimed, lease = attempt.claimed, attempt.lease
    limit: asyncio.Timeout | None = None
    ended_by: BaseException | None = None
    try:
        if claimed.attempt_timeout is None:
            result = await handler.run(ctx, claimed.input_payload, claimed.payload_encoding)
        else:
            async with asyncio.timeout(claimed.attempt_timeout) as limit:
                result = await handler.run(ctx, claimed.input_payload, claimed.payload_encoding)
        completion = Completion(lease, result.data, result.encoding)
        if durable.made is not None:
            await durable.made.close(None)
        if not transaction.begun or attempt.suspended or durable.diverged:
            return _Diverged(durable.get()) if durable.diverged else completion
        await services.frames.flush(attempt)
        # Set before the commit: a renewal that finds the execution ended then finds our own end.
        attempt.finished = True
        await transaction.complete(completion)
        return Recorded()
    except CommitUncertain as error:
        # If the commit did happen, this release is refused: a success is never handed back.
        reason = f"its commit got no answer: {error}"
        return Trouble(lease=lease, reason=reason)
    except asyncio.CancelledError as error:
        ended_by = error
        if attempt.lost or attempt.finished:
            return None
        if _being_cancelled():
            raise
        attempt.error = error
        return _Diverged(durable.get()) if durable.diverged else failure_of(error, lease, handler)
    except AttemptSuspended:
        return None
    except BaseException as error:
        ended_by = error
        if isinstance(error, LeaseLost) and (attempt.lost or attempt.finished):
            return None
        if durable.diverged:
            return _Diverged(durable.get())
        if isinstance(error, TimeoutError) and limit is not None and limit.expired():
            log.debug("%s is stopped by its timeout", attempt, exc_info=True)
            await _flush_frames(attempt, services)
            await _expire(attempt, engine)
            return None
        return _raised(error, attempt, handler, transaction)
    finally:
        if durable.made is not None:
            await _close(durable.made, ended_by)
        if attempt.frames is not None:
            await _flush_frames(attempt, services)


async def _flush_frames(attempt: RunningAttempt, services: DurableServices) -> None:
    """What the handler emitted is committed before its attempt ends."""
    try:
        await services.frames.flush(attempt)
    except LeaseLost:
        pass
    except FlowFabricError as error:
        log.warning("frames of %s are lost: %s", attempt, error)


async def _close(durable: Durable, ended_by: BaseException | None) -> None:
    """Write what waited for a flush; what cannot be written is computed again."""
    try:
        await durable.close(ended_by)
    except (LeaseLost, AttemptSuspended):
        pass
    except FlowFabricError as error:
        log.warning("entries of %s are lost and made again: %s", durable.attempt, error)


def _raised(
    error: BaseException, attempt: RunningAttempt, handler: Handler, transaction: HandlerTransaction
) -> Failure | Trouble:
    """The outcome of a handler that raised: trouble with the database is no failure of it."""
    outcome = outcome_of(error, attempt.lease, handler, connection_lost=transaction.lost)
    if not isinstance(error, Reported):  # its traceback is that of the child process
        attempt.error = error
    return outcome


async def _expire(attempt: RunningAttempt, engine: EngineLike) -> None:
    """The attempt exceeded its timeout: the engine decides now whether to retry or to end it."""
    attempt.finished = True
    try:
        await expire_attempts(engine)
    except FlowFabricError as error:
        log.warning("%s timed out and is left to the sweep: %s", attempt, error)


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
