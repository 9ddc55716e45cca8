"""Every operation of a lease holder, in one form: leases in, answers out."""

from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.cancel import Cancellation, cancel
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.delay import DelayRequest, delay
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.progress import progress
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.lifecycle.renew import renew

Operation = Callable[[Connection, Sequence[Lease]], Coroutine[Any, Any, list[Any]]]


async def _renew(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    return await renew(db, leases, ttl=timedelta(hours=1), record=True)


async def _progress(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    return [await progress(db, lease, percent=50, message="half") for lease in leases]


async def _complete(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    return await complete(db, [Completion(lease, b"done") for lease in leases])


async def _fail(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    return await fail(
        db, [Failure(lease=lease, reason="boom", category="permanent") for lease in leases]
    )


async def _fail_retry(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    return await fail(db, [Failure(lease=lease, reason="boom") for lease in leases])


async def _delay(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    return await delay(db, [DelayRequest(lease=lease, delay=60) for lease in leases])


async def _release(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    return await release(db, leases)


async def _cancel(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    return await cancel(db, [Cancellation(lease, "no") for lease in leases])


OPERATIONS: dict[str, Operation] = {
    "renew": _renew,
    "progress": _progress,
    "complete": _complete,
    "fail": _fail,
    "fail_retry": _fail_retry,
    "delay": _delay,
    "release": _release,
    "cancel": _cancel,
}

LETTING_GO = {name: op for name, op in OPERATIONS.items() if name not in ("renew", "progress")}
"""Those after which the caller holds nothing."""

each = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
each_letting_go = pytest.mark.parametrize("operation", LETTING_GO.values(), ids=LETTING_GO)
