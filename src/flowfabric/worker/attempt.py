"""One attempt: the handler runs, and whatever happens becomes an outcome."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Final

from flowfabric.db.transaction import run
from flowfabric.engine.facade import Engine
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.expire_attempts import expire_attempts
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.errors import FlowFabricError, LeaseLost
from flowfabric.worker.children import Parked
from flowfabric.worker.context import Ctx
from flowfabric.worker.handler import Handler, failure_of
from flowfabric.worker.held import Held

log: Final = logging.getLogger("flowfabric.worker")


async def run_attempt(
    held: Held, handler: Handler, engine: Engine, state: SimpleNamespace
) -> Completion | Failure | None:
    """Run the handler to its outcome; None when the attempt is no longer ours to end.

    One that was put down is not, however the handler went on.
    """
    outcome = await _outcome(held, handler, engine, state)
    return None if held.parked else outcome


async def _outcome(
    held: Held, handler: Handler, engine: Engine, state: SimpleNamespace
) -> Completion | Failure | None:
    claimed = held.claimed
    ctx = Ctx(held, engine, state)
    limit: asyncio.Timeout | None = None
    try:
        if claimed.attempt_timeout is None:
            result = await handler.run(ctx, claimed.input_payload, claimed.payload_encoding)
        else:
            async with asyncio.timeout(claimed.attempt_timeout) as limit:
                result = await handler.run(ctx, claimed.input_payload, claimed.payload_encoding)
    except asyncio.CancelledError as error:
        if held.lost or held.finished:
            return None
        if _being_cancelled():
            raise
        return failure_of(error, claimed.lease, handler)
    except LeaseLost as error:
        if held.lost or held.parked:
            return None
        return failure_of(error, claimed.lease, handler)  # the engine knows whose the lease is
    except Parked:
        return None
    except KeyboardInterrupt:
        raise
    except TimeoutError as error:
        if limit is not None and limit.expired():
            await _end_overdue(held, engine)
            return None
        return failure_of(error, claimed.lease, handler)
    except BaseException as error:
        if not isinstance(error, FlowFabricError):
            log.debug("%s failed", claimed.lease.execution_id, exc_info=True)
        return failure_of(error, claimed.lease, handler)
    return Completion(claimed.lease, result)


async def _end_overdue(held: Held, engine: Engine) -> None:
    """The attempt took too long: the engine decides between retry and end, at once if it can."""
    held.finished = True
    try:
        await run(engine.pool, "expire_attempts", lambda conn: expire_attempts(conn, 100))
    except FlowFabricError as error:
        log.warning("an overdue attempt is left to the sweep: %s", error)


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
