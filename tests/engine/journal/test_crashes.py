"""A process that dies in the middle of a change leaves all of it or nothing."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.db.steps import current_step
from flowfabric.engine.journal.arm_compensation import arm_compensation
from flowfabric.engine.journal.disarm_compensations import disarm_compensations
from flowfabric.engine.journal.record_entries import record_entries
from flowfabric.engine.journal.restart_execution import restart_execution
from flowfabric.engine.journal.start_compensations import start_compensations
from flowfabric.engine.keys.seed_waitpoint_hmac_secret import seed_waitpoint_hmac_secret
from flowfabric.engine.lifecycle.delay import DelayRequest, delay
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.engine.operators.wake_execution import wake_execution
from flowfabric.engine.suspensions.create_waitpoint import create_waitpoint
from flowfabric.states import JournalKind
from tests import given
from tests.engine.journal.compensating import arm, failed
from tests.engine.journal.journals import BEGAN, COMPENSATION, entry, recorded, refund, signalled

Call = Callable[[Connection, Lease], Awaitable[Any]]


async def _asleep(db: Connection, lease: Lease) -> None:
    await recorded(db, lease, "~nap?", due_at=BEGAN)
    await delay(db, [DelayRequest(lease=lease, delay=60)])


async def _nothing(db: Connection, lease: Lease) -> None:
    """The worker holds the execution."""


CHANGES: dict[str, tuple[Call, Call]] = {
    "restart": (_nothing, lambda db, lease: restart_execution(db, lease, payload=b"2")),
    "arm": (
        _nothing,
        lambda db, lease: arm_compensation(db, entry(lease, 9, kind=COMPENSATION), refund()),
    ),
    "disarm": (
        _nothing,
        lambda db, lease: disarm_compensations(db, entry(lease, 9, kind=COMPENSATION)),
    ),
    "rewind": (failed, lambda db, lease: replay_execution(db, lease.execution_id, from_="start")),
    "compensate": (failed, lambda db, lease: start_compensations(db, 10)),
    "waitpoint": (
        lambda db, _lease: seed_waitpoint_hmac_secret(db, "k1", "a1" * 32),
        lambda db, lease: create_waitpoint(
            db, lease, "door", expires_in=60, entry=entry(lease, 9, kind=JournalKind.WAITPOINT)
        ),
    ),
    "wake": (_asleep, lambda db, lease: wake_execution(db, lease.execution_id, skip=True)),
}


@pytest.mark.parametrize(("prepare", "change"), CHANGES.values(), ids=CHANGES)
async def test_a_change_is_whole_or_not_there(db: Connection, prepare: Call, change: Call) -> None:
    lease = await given.claimed(db, input_payload=b"1")
    await signalled(db, lease.execution_id, "paid", "paid")
    await record_entries(db, [entry(lease, 1, "wait", kind=JournalKind.SIGNAL, signal_seq=1)])
    await arm(db, lease, b'"a"')
    await prepare(db, lease)
    before, at = await given.everything(db), 0
    while await _crashes(db, lease, change, at):
        assert await given.everything(db) == before
        at += 1

    assert at > 2
    assert await given.everything(db) != before


async def _crashes(db: Connection, lease: Lease, change: Call, at: int) -> bool:
    """Does the process die before the statement of this number? Else the change is made."""
    made: list[str] = []

    async def step(conn: object, name: str) -> None:
        if len(made) == at:
            raise ConnectionError(name)
        made.append(name)

    token = current_step.set(step)
    try:
        async with db.transaction():
            await change(db, lease)
    except ConnectionError:
        return True
    finally:
        current_step.reset(token)
    return False
