"""A flush against whatever ends the lease: the next holder reads all that was ever recorded.

In each race both orders are tried. If the flush comes first, the end waits for its commit, and the
entry is there before anybody else can read. If the end comes first, the flush waits for it and is
refused: a holder that has lost its lease never adds to a journal that the next one has read.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.reclaim_execution import reclaim_execution
from flowfabric.engine.journal.arm_compensation import arm_compensation
from flowfabric.engine.journal.read_journal import read_journal
from flowfabric.engine.journal.record_entries import record_entries
from flowfabric.engine.journal.restart_execution import restart_execution
from flowfabric.engine.lifecycle.claim_by_id import ClaimedById
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.delay import DelayRequest, delay
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.engine.operators.revoke_lease import revoke_lease
from flowfabric.errors import Refusal
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another
from tests.engine.grants import granted
from tests.engine.journal.journals import COMPENSATION, claimed_again, entry, journal, refund

End = Callable[[Connection, Lease], Awaitable[Any]]


async def _restart(db: Connection, lease: Lease) -> None:
    await restart_execution(db, lease, payload=b"{}")


ENDS: dict[str, End] = {
    "cancel": lambda db, lease: cancel_execution(db, lease.execution_id, reason="no"),
    "revoke": lambda db, lease: revoke_lease(db, lease.execution_id, reason="stuck"),
    "complete": lambda db, lease: complete(db, [Completion(lease)]),
    "fail": lambda db, lease: fail(db, [Failure(lease=lease, reason="boom")]),
    "release": lambda db, lease: release(db, [lease]),
    "delay": lambda db, lease: delay(db, [DelayRequest(lease=lease, delay=0)]),
    "restart": _restart,
}
each_end = pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)


@each_end
async def test_an_end_waits_for_a_flush_and_then_finds_its_entry(
    db: Connection, another: Another, end: End
) -> None:
    lease = await given.claimed(db)
    flushing, ending = await another(), await another()
    async with flushing.transaction():
        assert await record_entries(flushing, [entry(lease, 1)]) == {}
        ended = await given.blocked(db, ending, _in_transaction(ending, lambda: end(ending, lease)))
        assert await journal(db, lease.execution_id) == []
    await ended

    assert end is _restart or await journal(db, lease.execution_id) == ["1 charge done"]
    assert set(await record_entries(db, [entry(lease, 2)])) == {lease}


@each_end
async def test_a_flush_waits_for_an_end_and_is_refused(
    db: Connection, another: Another, end: End
) -> None:
    lease = await given.claimed(db)
    flushing, ending = await another(), await another()
    async with ending.transaction():
        await end(ending, lease)
        flushed = await given.blocked(
            db, flushing, record_entries(flushing, [entry(lease, 1, "zombie")])
        )

    assert set(await flushed) == {lease}
    assert not any("zombie" in each for each in await journal(db, lease.execution_id))


async def test_a_flush_before_the_expiry_is_read_by_the_next_holder(
    db: Connection, another: Another, clock: Clock
) -> None:
    lease = await given.claimed(db, ttl=30)
    flushing = await another()
    async with flushing.transaction():
        await record_entries(flushing, [entry(lease, 1)])
        await clock.advance(31)
        assert await expire_leases(db, 10) == 0  # the sweep passes over what is in use
    assert await expire_leases(db, 10) == 1

    held = await claimed_again(db, lease.execution_id)

    found = await read_journal(db, [held.execution_id])
    assert [each.name for each in found[held.execution_id].entries] == ["charge"]


async def test_a_flush_after_the_expiry_records_nothing_that_the_next_holder_has_not_read(
    db: Connection, another: Another, clock: Clock
) -> None:
    lease = await given.claimed(db, ttl=30)
    await clock.advance(31)
    flushing, sweeping = await another(), await another()
    async with sweeping.transaction():
        await expire_leases(sweeping, 10)
        assert set(await record_entries(flushing, [entry(lease, 1, "zombie")])) == {lease}
    held = await claimed_again(db, lease.execution_id)
    read = await read_journal(db, [held.execution_id])

    assert set(await record_entries(flushing, [entry(lease, 1, "zombie")])) == {lease}

    assert read == await read_journal(db, [held.execution_id])
    assert read[held.execution_id].entries == ()


async def test_a_reclaim_waits_for_a_flush_and_then_reads_its_entry(
    db: Connection, another: Another, clock: Clock
) -> None:
    lease = await _reclaimable(db, clock)
    flushing, reclaiming = await another(), await another()
    async with flushing.transaction():
        await record_entries(flushing, [entry(lease, 1)])
        await clock.advance(2)
        taken = await given.blocked(
            db, reclaiming, granted.reclaim_it(reclaiming, lease.execution_id)
        )
    assert isinstance(await taken, ClaimedById)

    found = await read_journal(db, [lease.execution_id])
    assert [each.name for each in found[lease.execution_id].entries] == ["charge"]
    assert set(await record_entries(db, [entry(lease, 2, "zombie")])) == {lease}


async def test_a_flush_during_a_reclaim_is_refused(
    db: Connection, another: Another, clock: Clock
) -> None:
    lease = await _reclaimable(db, clock)
    await clock.advance(2)
    flushing, reclaiming = await another(), await another()
    async with reclaiming.transaction():
        taken = await reclaim_execution(
            reclaiming, lease.execution_id, worker_id="w", worker_instance_id="w-2", lease_ttl=30
        )
        assert isinstance(taken, ClaimedById)
        await clock.advance(-2)  # by its own clock the holder is in time
        flushed = await given.blocked(
            db, flushing, record_entries(flushing, [entry(lease, 1, "zombie")])
        )

    assert set(await flushed) == {lease}
    assert await journal(db, lease.execution_id) == []


async def test_one_flush_for_many_leases_waits_for_the_end_of_one_and_keeps_the_others(
    db: Connection, another: Another
) -> None:
    leases = [await given.claimed(db) for _ in range(4)]
    flushing, ending = await another(), await another()
    async with ending.transaction():
        await complete(ending, [Completion(leases[1]), Completion(leases[3])])
        flushed = await given.blocked(
            db, flushing, record_entries(flushing, [entry(each, 1) for each in leases])
        )

    assert set(await flushed) == {leases[1], leases[3]}
    assert [len(await journal(db, each.execution_id)) for each in leases] == [1, 0, 1, 0]


async def test_arming_and_a_cancel_never_wait_for_each_other_in_a_circle(
    db: Connection, another: Another
) -> None:
    lease = await given.claimed(db)
    arming, cancelling = await another(), await another()
    write = entry(lease, 1, "undo", kind=COMPENSATION)
    async with cancelling.transaction():
        await cancel_execution(cancelling, lease.execution_id, reason="no")
        armed = await given.blocked(
            db,
            arming,
            _in_transaction(arming, lambda: arm_compensation(arming, write, refund())),
        )
    assert isinstance(await armed, Refusal)
    assert not (await given.row(db, lease.execution_id))["compensates"]

    async with db.transaction():
        await replay_execution(db, lease.execution_id)
    again = await claimed_again(db, lease.execution_id)
    write = entry(again, 1, "undo", kind=COMPENSATION)
    async with arming.transaction():
        await arm_compensation(arming, write, refund())
        cancelled = await given.blocked(
            db,
            cancelling,
            _in_transaction(
                cancelling,
                lambda: cancel_execution(cancelling, lease.execution_id, reason="no"),
            ),
        )
    await cancelled
    assert (await given.row(db, lease.execution_id))["compensates"]


async def _in_transaction(conn: Connection, call: Callable[[], Awaitable[Any]]) -> Any:
    async with conn.transaction():
        return await call()


async def _reclaimable(db: Connection, clock: Clock) -> Lease:
    """A lease that was granted for a reclaim; the clock is back where it is held."""
    await granted.keyed(db)
    lease = await granted.lost(db, clock)
    await granted.reclaim_granted(db, lease.execution_id)
    await clock.advance(-2)
    return lease
