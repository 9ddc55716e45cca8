"""One attempt: the handler runs, and whatever happens becomes an outcome."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Final, TypeAlias

import msgspec

from flowfabric.db.transaction import run
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.expire_attempts import expire_attempts
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import FlowFabricError, LeaseLost
from flowfabric.worker.children import Parked
from flowfabric.worker.context import Ctx
from flowfabric.worker.handler import Handler, failure_of
from flowfabric.worker.running_attempt import RunningAttempt
from flowfabric.worker.transaction import OwnTransaction, Transactions, Unsure

log: Final = logging.getLogger("flowfabric.worker")


class Recorded(msgspec.Struct, frozen=True):
    """The outcome is in the database already, with what the handler did in its transaction."""


Ending: TypeAlias = Completion | Failure | Lease | Recorded | None
"""How an attempt ends: a bare lease is handed back, None is no longer ours to end."""


async def run_attempt(
    running: RunningAttempt,
    handler: Handler,
    engine: Engine,
    state: SimpleNamespace,
    transactions: Transactions,
) -> Ending:
    """Run the handler to its outcome; one that was put down has none, however it went on."""
    own = OwnTransaction(transactions)
    try:
        outcome = await _outcome(running, handler, Ctx(running, engine, state, own), own, engine)
    finally:
        await own.close()
    return None if running.parked else outcome


async def _outcome(
    running: RunningAttempt, handler: Handler, ctx: Ctx, own: OwnTransaction, engine: Engine
) -> Ending:
    claimed = running.claimed
    limit: asyncio.Timeout | None = None
    try:
        if claimed.attempt_timeout is None:
            result = await handler.run(ctx, claimed.input_payload, claimed.payload_encoding)
        else:
            async with asyncio.timeout(claimed.attempt_timeout) as limit:
                result = await handler.run(ctx, claimed.input_payload, claimed.payload_encoding)
        completion = Completion(claimed.lease, result)
        if not own.begun or running.parked:
            return completion
        running.finished = True  # a renewal that finds it ended from now on found our own end
        await own.complete(completion)
        return Recorded()
    except Unsure as error:
        # If it was committed, this is refused: a success is never handed back.
        log.warning("%s is handed back, its commit got no answer: %s", ctx.execution_id, error)
        return claimed.lease
    except asyncio.CancelledError as error:
        if running.lost or running.finished:
            return None
        if _being_cancelled():
            raise
        return failure_of(error, claimed.lease, handler)
    except LeaseLost as error:
        if running.lost or running.parked:
            return None
        return failure_of(error, claimed.lease, handler)  # the engine knows whose the lease is
    except Parked:
        return None
    except KeyboardInterrupt:
        raise
    except TimeoutError as error:
        if limit is not None and limit.expired():
            await _end_overdue(running, engine)
            return None
        return failure_of(error, claimed.lease, handler)
    except BaseException as error:
        if not isinstance(error, FlowFabricError):
            log.debug("%s failed", claimed.lease.execution_id, exc_info=True)
        return failure_of(error, claimed.lease, handler)


async def _end_overdue(running: RunningAttempt, engine: Engine) -> None:
    """The attempt took too long: the engine decides between retry and end, at once if it can."""
    running.finished = True
    try:
        await run(engine.pool, "expire_attempts", lambda conn: expire_attempts(conn, 100))
    except FlowFabricError as error:
        log.warning("an overdue attempt is left to the sweep: %s", error)


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
