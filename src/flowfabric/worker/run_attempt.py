"""Runs one attempt: whatever the handler returns or raises becomes an outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Final, TypeAlias

import msgspec

from flowfabric.db.transaction import run
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.expire_attempts import expire_attempts
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.release_after_trouble import Trouble
from flowfabric.errors import FlowFabricError, LeaseLost
from flowfabric.worker.children import AttemptSuspended
from flowfabric.worker.context import Ctx
from flowfabric.worker.handler import Handler, Reported, failure_of, outcome_of
from flowfabric.worker.log_context import set_log_context
from flowfabric.worker.running_attempt import RunningAttempt
from flowfabric.worker.transaction import CommitUncertain, HandlerTransaction
from flowfabric.worker.transaction_pool import TransactionPool
from flowfabric.worker.upstreams import ResultReader

log: Final = logging.getLogger("flowfabric.worker")


class Recorded(msgspec.Struct, frozen=True):
    """The outcome is in the database already: the handler's own transaction committed it."""


HandlerOutcome: TypeAlias = Completion | Failure | Trouble | Recorded | None
"""How an attempt ends; for None there is nothing to record."""


async def run_attempt(
    attempt: RunningAttempt,
    handler: Handler,
    engine: Engine,
    state: SimpleNamespace,
    transactions: TransactionPool,
    readers: Mapping[str, ResultReader],
) -> HandlerOutcome:
    """Run the handler to its outcome; an attempt that was suspended to wait has none.

    `readers` decode the results of upstreams, by the kind of their tasks.
    """
    set_log_context(attempt.claimed)
    transaction = HandlerTransaction(transactions, attempt)
    ctx = Ctx(attempt, engine, state, transaction, readers)
    try:
        outcome = await _outcome(attempt, handler, ctx, transaction, engine)
    finally:
        await transaction.close()
    return None if attempt.suspended else outcome


async def _outcome(
    attempt: RunningAttempt,
    handler: Handler,
    ctx: Ctx,
    transaction: HandlerTransaction,
    engine: Engine,
) -> HandlerOutcome:
    claimed, lease = attempt.claimed, attempt.lease
    limit: asyncio.Timeout | None = None
    try:
        if claimed.attempt_timeout is None:
            result = await handler.run(ctx, claimed.input_payload, claimed.payload_encoding)
        else:
            async with asyncio.timeout(claimed.attempt_timeout) as limit:
                result = await handler.run(ctx, claimed.input_payload, claimed.payload_encoding)
        completion = Completion(lease, result.data, result.encoding)
        if not transaction.begun or attempt.suspended:
            return completion
        # Set before the commit: a renewal that finds the execution ended then finds our own end.
        attempt.finished = True
        await transaction.complete(completion)
        return Recorded()
    except CommitUncertain as error:
        # If the commit did happen, this release is refused: a success is never handed back.
        reason = f"its commit got no answer: {error}"
        return Trouble(lease=lease, reason=reason)
    except asyncio.CancelledError as error:
        if attempt.lost or attempt.finished:
            return None
        if _being_cancelled():
            raise
        attempt.error = error
        return failure_of(error, lease, handler)
    except LeaseLost as error:
        if attempt.lost or attempt.suspended:
            return None
        attempt.error = error
        return failure_of(error, lease, handler)  # raised by user code; the engine has the say
    except AttemptSuspended:
        return None
    except TimeoutError as error:
        if limit is not None and limit.expired():
            log.debug("%s is stopped by its timeout", attempt, exc_info=True)
            await _expire(attempt, engine)
            return None
        return _raised(error, attempt, handler, transaction)
    except BaseException as error:
        return _raised(error, attempt, handler, transaction)


def _raised(
    error: BaseException, attempt: RunningAttempt, handler: Handler, transaction: HandlerTransaction
) -> Failure | Trouble:
    """The outcome of a handler that raised: trouble with the database is no failure of it."""
    outcome = outcome_of(error, attempt.lease, handler, connection_lost=transaction.lost)
    if not isinstance(error, Reported):  # its traceback is that of the child process
        attempt.error = error
    return outcome


async def _expire(attempt: RunningAttempt, engine: Engine) -> None:
    """The attempt exceeded its timeout: the engine decides now whether to retry or to end it."""
    attempt.finished = True
    try:
        await run(engine.pool, "expire_attempts", lambda conn: expire_attempts(conn, 100))
    except FlowFabricError as error:
        log.warning("%s timed out and is left to the sweep: %s", attempt, error)


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
