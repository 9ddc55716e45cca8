"""An operator wakes executions before their delay is over, and may skip the sleep they are in."""

from datetime import timedelta
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.journal.read_journal import read_journal
from flowfabric.engine.journal.record_entries import record_entries
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.delay import DelayRequest, delay
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.operators.wake_execution import Woken, wake_execution, wake_executions
from flowfabric.errors import ExecutionNotEligible, NotFound, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.instants import epoch_ms, instant
from flowfabric.states import JournalState, PublicState
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import NO_DATABASE, Action, actions, bad_actors, execution
from tests.engine.journal.journals import OPEN, SLEEP, entry, journal, recorded


async def asleep(db: Connection, clock: Clock, **naps: float) -> Lease:
    """An execution whose handler sleeps, in several branches if several are named."""
    lease = await given.claimed(db)
    now = instant(await clock.now_ms())
    writes = [
        entry(
            lease,
            seq,
            name,
            kind=SLEEP,
            state=OPEN,
            started_at=now,
            due_at=now + timedelta(seconds=seconds),
        )
        for seq, (name, seconds) in enumerate(naps.items(), 1)
    ]
    assert await record_entries(db, writes) == {}
    until = now + timedelta(seconds=min(naps.values()))
    await delay(db, [DelayRequest(lease=lease, delay_until=until, detail="sleeps")])
    return lease


async def woken(db: Connection, execution_id: ExecutionId, **options: Any) -> Woken:
    async with db.transaction():
        return await wake_execution(db, execution_id, **options)


async def test_a_sleeper_is_claimable_now_and_finds_its_sleep_not_due(
    db: Connection, clock: Clock
) -> None:
    lease = await asleep(db, clock, nap=3600)

    answer = await woken(db, lease.execution_id)

    assert answer == Woken(execution_id=lease.execution_id, public_state=PublicState.WAITING)
    [again] = await claim(db, given.WORKER, ttl=30)
    assert again.lease.attempt_index == lease.attempt_index
    [nap] = (await read_journal(db, [lease.execution_id]))[lease.execution_id].entries
    assert nap.state is JournalState.OPEN
    assert nap.due_at == instant(await clock.now_ms()) + timedelta(hours=1)
    assert (await given.row(db, lease.execution_id))["blocking_detail"] is None


async def test_a_skipped_sleep_is_over(db: Connection, clock: Clock) -> None:
    lease = await asleep(db, clock, nap=3600)
    until = await clock.now_ms() + 3_600_000
    await clock.advance(5)

    answer = await woken(db, lease.execution_id, skip=True, actor="ann", reason="in a hurry")

    assert answer.skipped == "nap#0"
    [nap] = (await read_journal(db, [lease.execution_id]))[lease.execution_id].entries
    assert (nap.state, epoch_ms(nap.recorded_at)) == (JournalState.DONE, await clock.now_ms())
    assert await actions(db, lease.execution_id) == [
        Action(
            "woken",
            "ann",
            "in a hurry",
            {
                "old_public_state": "delayed",
                "new_public_state": "waiting",
                "old_delay_until_ms": until,
                "skipped": "nap#0",
            },
        )
    ]


async def test_of_several_sleeps_the_one_that_is_over_first_is_skipped(
    db: Connection, clock: Clock
) -> None:
    lease = await asleep(db, clock, long=900, short=60, middle=300)

    assert (await woken(db, lease.execution_id, skip=True)).skipped == "short#0"

    assert await journal(db, lease.execution_id) == ["1 long open", "2 short done", "3 middle open"]


@pytest.mark.parametrize("state", ["delayed", "retrying"])
async def test_any_delay_can_be_cut_short(db: Connection, state: str) -> None:
    execution_id = await execution(db, state)

    await woken(db, execution_id)

    assert await given.public_state(db, execution_id) is PublicState.WAITING


async def test_without_an_open_sleep_there_is_nothing_to_skip(db: Connection) -> None:
    lease = await given.claimed(db)
    await recorded(db, lease, "step?", "~over")
    await delay(db, [DelayRequest(lease=lease, delay=60)])
    before = await given.everything(db)

    with pytest.raises(NotFound) as refused:
        await woken(db, lease.execution_id, skip=True)

    assert str(refused.value) == f"sleep of execution {lease.execution_id} does not exist"
    assert await given.everything(db) == before


@pytest.mark.parametrize("state", ["waiting", "active", "blocked", "completed", "cancelled"])
async def test_what_is_not_delayed_is_refused(db: Connection, state: str) -> None:
    execution_id = await execution(db, state)
    before = await given.everything(db)

    with pytest.raises(ExecutionNotEligible, match="not delayed"):
        await woken(db, execution_id)

    assert await given.everything(db) == before


async def test_what_does_not_exist_is_not_found(db: Connection) -> None:
    with pytest.raises(NotFound):
        await woken(db, ExecutionId.mint())


async def test_many_are_answered_one_by_one(db: Connection, clock: Clock) -> None:
    first, second = await asleep(db, clock, a=60), await asleep(db, clock, b=60)
    delayed, waiting = await execution(db, "delayed"), await execution(db, "waiting")
    unknown = ExecutionId.mint()
    named = [first.execution_id, waiting, delayed, unknown, second.execution_id, delayed]

    async with db.transaction():
        answers = await wake_executions(db, named, skip=True)

    assert [type(each) for each in answers] == [
        Woken,
        ExecutionNotEligible,
        NotFound,
        NotFound,
        Woken,
        NotFound,
    ]
    assert await given.public_state(db, delayed) is PublicState.DELAYED
    assert [each.event_type for each in await actions(db)] == ["woken", "woken"]


async def test_a_worker_is_woken_too(db: Connection, clock: Clock, ff_engine: Engine) -> None:
    lease = await asleep(db, clock, nap=3600)

    await ff_engine.wake_execution(lease.execution_id)

    assert await db.fetchval("SELECT count(*) FROM ff.ready") == 1


@bad_actors
async def test_a_bad_actor_is_refused(actor: str) -> None:
    with pytest.raises(ValidationError, match="actor"):
        await wake_execution(NO_DATABASE, ExecutionId.mint(), actor=actor)
