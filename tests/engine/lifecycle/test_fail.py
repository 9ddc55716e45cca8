"""active → runnable or terminal(failed)."""

from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, RetryScheduled, TerminalFailed, fail
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.errors import ValidationError
from flowfabric.instants import instant
from flowfabric.policy import ExecutionPolicy, FixedBackoff
from flowfabric.testing import Clock
from tests import given

FAILED = "terminal/not_applicable/none/failed/attempt_terminal → failed"
BACKING_OFF = (
    "runnable/not_eligible_until_time/waiting_for_retry_backoff/none/pending_retry_attempt"
    " → delayed"
)
CLAIMABLE = "runnable/eligible_now/waiting_for_worker/none/pending_retry_attempt → waiting"
LOST = "\N{REPLACEMENT CHARACTER}"


async def test_a_failure_with_retries_left_waits_for_its_backoff(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db, policy=given.retrying(2))
    began = await clock.now_ms()
    await clock.advance(5)

    [answer] = await fail(
        db, [Failure(lease=lease, reason="boom", category="flaky", detail="Traceback …")]
    )

    now = await clock.now_ms()
    assert answer == RetryScheduled(
        execution_id=lease.execution_id,
        delay_until=instant(now + 1000),
        next_attempt_index=1,
        max_attempts=3,
    )
    assert await given.standing(db, lease.execution_id) == BACKING_OFF
    stored = await given.row(db, lease.execution_id)
    assert stored == stored | {
        "attempt_index": 1,
        "retry_count": 1,
        "total_attempt_count": 1,
        "lease_reclaim_count": 0,
        "lease_epoch": lease.lease_epoch,
        "delay_until_ms": now + 1000,
        "failure_reason": "boom",
        "failure_category": "flaky",
        "terminal_at_ms": None,
        "last_mutation_at_ms": now,
    }
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("revoked", "retry"),
    ]
    assert await given.completion_events(db, lease.execution_id) == []
    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt == attempt | {
        "attempt_index": 0,
        "outcome": "retry",
        "failure_reason": "boom",
        "failure_category": "flaky",
        "failure_detail": "Traceback …",
        "started_at_ms": began,
        "ended_at_ms": now,
        "lease_epoch": lease.lease_epoch,
        "worker_instance_id": "w-1",
        "result": None,
    }


async def test_a_failure_without_a_retry_is_the_end(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    began = await clock.now_ms()
    await clock.advance(5)

    [answer] = await fail(
        db, [Failure(lease=lease, reason="boom", category="flaky", detail="Traceback …")]
    )

    assert answer == TerminalFailed(execution_id=lease.execution_id, max_attempts=1)
    assert await given.standing(db, lease.execution_id) == FAILED
    stored, now = await given.row(db, lease.execution_id), await clock.now_ms()
    assert stored == stored | {
        "attempt_index": 0,
        "retry_count": 0,
        "lease_epoch": lease.lease_epoch,
        "delay_until_ms": None,
        "failure_reason": "boom",
        "failure_category": "flaky",
        "terminal_at_ms": now,
        "last_mutation_at_ms": now,
    }
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("revoked", "failed"),
    ]
    assert await given.completion_events(db, lease.execution_id) == ["failed"]
    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt == attempt | {
        "outcome": "failed",
        "failure_reason": "boom",
        "failure_category": "flaky",
        "failure_detail": "Traceback …",
        "started_at_ms": began,
        "ended_at_ms": now,
    }


async def test_a_retry_without_delay_is_claimable_at_once(db: Connection) -> None:
    lease = await given.claimed(db, policy=given.retrying(backoff=FixedBackoff(delay=0)))

    [answer] = await fail(db, [Failure(lease=lease, reason="boom")])

    assert answer == RetryScheduled(
        execution_id=lease.execution_id, delay_until=None, next_attempt_index=1, max_attempts=4
    )
    assert await given.standing(db, lease.execution_id) == CLAIMABLE
    assert (await given.row(db, lease.execution_id))["delay_until_ms"] is None
    assert len(await claim(db, given.OTHER, ttl=30)) == 1


async def test_the_holder_may_say_when_to_try_again(db: Connection, clock: Clock) -> None:
    leases = [await given.claimed(db, policy=given.retrying()) for _ in range(3)]

    answers = await fail(
        db,
        [
            Failure(lease=lease, reason="busy", retry_after=after)
            for lease, after in zip(leases, (90, 0, None), strict=True)
        ],
    )

    now = await clock.now_ms()
    assert [answer.delay_until for answer in answers if isinstance(answer, RetryScheduled)] == [
        instant(now + 90_000),
        None,
        instant(now + 1000),
    ]
    assert await given.standing(db, leases[1].execution_id) == CLAIMABLE


async def test_saying_when_does_not_make_it_retry(db: Connection) -> None:
    lease = await given.claimed(db)

    [answer] = await fail(db, [Failure(lease=lease, reason="busy", retry_after=0.001)])

    assert answer == TerminalFailed(execution_id=lease.execution_id, max_attempts=1)


@pytest.mark.parametrize("after", [10**12, 2**63, "5", True, float("nan")])
async def test_a_retry_further_away_than_the_calendar_is_refused(
    db: Connection, after: Any
) -> None:
    lease = await given.claimed(db, policy=given.retrying())
    before = await given.everything(db)

    with pytest.raises(ValidationError, match="invalid_input"):
        await fail(db, [Failure(lease=lease, reason="busy", retry_after=after)])

    assert await given.everything(db) == before


async def test_retries_are_exhausted_one_by_one(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, policy=given.retrying(2))
    outcomes = []
    for _ in range(3):
        [answer] = await fail(db, [Failure(lease=lease, reason="boom")])
        outcomes.append(type(answer))
        await clock.advance(60)
        await promote_due(db, limit=10)
        for task in await claim(db, given.WORKER, ttl=30):
            lease = task.lease

    assert outcomes == [RetryScheduled, RetryScheduled, TerminalFailed]
    stored = await given.row(db, lease.execution_id)
    assert stored == stored | {"retry_count": 2, "attempt_index": 2, "total_attempt_count": 3}
    ledger = await given.attempts(db, lease.execution_id)
    assert [(a["attempt_index"], a["attempt_type"], a["outcome"]) for a in ledger] == [
        (0, "initial", "retry"),
        (1, "retry", "retry"),
        (2, "retry", "failed"),
    ]
    assert await given.completion_events(db, lease.execution_id) == ["failed"]


async def test_retries_are_counted_not_attempts_or_lost_leases(
    db: Connection, clock: Clock
) -> None:
    await given.claimed(db, policy=given.retrying(1))
    for _ in range(3):
        await clock.advance(31)
        await expire_leases(db, limit=10)
        [task] = await claim(db, given.WORKER, ttl=30)

    [answer] = await fail(db, [Failure(lease=task.lease, reason="boom")])

    assert isinstance(answer, RetryScheduled)


@pytest.mark.parametrize(
    "policy", [None, ExecutionPolicy(), given.retrying(0)], ids=["none", "empty", "zero"]
)
async def test_without_retries_in_the_policy_the_first_failure_is_the_last(
    db: Connection, policy: ExecutionPolicy | None
) -> None:
    lease = await given.claimed(db, policy=policy)

    [answer] = await fail(db, [Failure(lease=lease, reason="boom")])

    assert isinstance(answer, TerminalFailed)


async def test_a_failure_keeps_the_executions_deadline(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, policy=given.retrying(), deadline=3600)
    deadline = await clock.now_ms() + 3_600_000

    await fail(db, [Failure(lease=lease, reason="boom")])

    assert (await given.row(db, lease.execution_id))["deadline_at_ms"] == deadline


async def test_a_batch_retries_some_and_ends_others_in_order(db: Connection) -> None:
    leases = [await given.claimed(db, policy=given.retrying() if n % 2 else None) for n in range(6)]

    answers = await fail(db, [Failure(lease=lease, reason="boom") for lease in leases])

    assert [type(answer) for answer in answers] == [TerminalFailed, RetryScheduled] * 3
    assert [
        answer.execution_id
        for answer in answers
        if isinstance(answer, TerminalFailed | RetryScheduled)
    ] == [lease.execution_id for lease in leases]


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("", ""),
        ("a\x00b", f"a{LOST}b"),
        ("\x00" * 3, LOST * 3),
        ("ä → 😀", "ä → 😀"),
    ],
)
async def test_a_reason_is_made_storable(db: Connection, text: str, stored: str) -> None:
    lease = await given.claimed(db)

    await fail(db, [Failure(lease=lease, reason=text, detail=text)])

    assert (await given.row(db, lease.execution_id))["failure_reason"] == stored
    [attempt] = await given.attempts(db, lease.execution_id)
    assert (attempt["failure_reason"], attempt["failure_detail"]) == (stored, stored)


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83d\ude00"])
async def test_lone_surrogates_are_replaced(db: Connection, text: str) -> None:
    lease = await given.claimed(db)

    [answer] = await fail(db, [Failure(lease=lease, reason=text, category=text, detail=text)])

    assert isinstance(answer, TerminalFailed)
    stored = await given.row(db, lease.execution_id)
    assert LOST in stored["failure_reason"]
    assert LOST in stored["failure_category"]


@pytest.mark.parametrize("letter", ["x", "ä", "😀", "\x00"])
@pytest.mark.parametrize("shift", ["", "-"])
async def test_a_megabyte_of_reason_is_cut_to_16_kib(
    db: Connection, letter: str, shift: str
) -> None:
    lease = await given.claimed(db)
    text = shift + letter * 1_000_000

    await fail(db, [Failure(lease=lease, reason=text, category=text, detail=text)])

    stored = await given.row(db, lease.execution_id)
    [attempt] = await given.attempts(db, lease.execution_id)
    for kept, limit in (
        (stored["failure_reason"], 16 * 1024),
        (attempt["failure_detail"], 16 * 1024),
        (stored["failure_category"], 256),
    ):
        assert limit - 8 < len(kept.encode()) <= limit
        assert kept.endswith("…")
        assert kept.startswith(shift + letter.replace("\x00", LOST))
