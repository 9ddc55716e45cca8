"""Signals that are repeated, and how many a waitpoint keeps."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from flowfabric.conditions import AllConditions, CountOf, Single
from flowfabric.db.rows import Connection
from flowfabric.engine.suspensions.signal_answers import SignalDuplicate
from flowfabric.states import SignalEffect
from flowfabric.testing import Clock
from tests import given
from tests.engine.suspensions.given_suspended import (
    accepted,
    deliver,
    kept,
    leased,
    pending,
    suspended,
    waitpoint_row,
)

APPENDED = SignalEffect.APPENDED_TO_WAITPOINT
RESUMES = SignalEffect.RESUME_CONDITION_SATISFIED


async def test_a_repeated_key_is_a_duplicate_and_writes_nothing(db: Connection) -> None:
    waitpoint = await pending(db, await leased(db))
    first = await accepted(db, waitpoint, idempotency_key="mail-7")
    before = await given.everything(db)

    again = await deliver(db, waitpoint, "another name", idempotency_key="mail-7")

    assert again == SignalDuplicate(existing_signal_id=first.signal_id)
    assert await given.everything(db) == before


async def test_a_key_belongs_to_its_waitpoint(db: Connection) -> None:
    lease = await leased(db)
    one, two = await pending(db, lease, "a"), await pending(db, lease, "b")

    for waitpoint in (one, two):
        await accepted(db, waitpoint, idempotency_key="k")

    assert [await kept(db, one), await kept(db, two)] == [["go"], ["go"]]


async def test_a_key_is_remembered_for_its_time(db: Connection, clock: Clock) -> None:
    waitpoint = await pending(db, await leased(db))
    first = await accepted(db, waitpoint, idempotency_key="k", dedup_ttl=10)
    await clock.advance(9.999)
    again = await deliver(db, waitpoint, idempotency_key="k", dedup_ttl=10)
    assert again == SignalDuplicate(existing_signal_id=first.signal_id)
    await clock.advance(0.001)

    second = await accepted(db, waitpoint, idempotency_key="k", dedup_ttl=10)

    third = await deliver(db, waitpoint, idempotency_key="k", dedup_ttl=10)
    assert third == SignalDuplicate(existing_signal_id=second.signal_id)
    assert len(await kept(db, waitpoint)) == 2


@pytest.mark.parametrize(
    "options", [{}, {"idempotency_key": ""}, {"idempotency_key": "k", "dedup_ttl": 0}]
)
async def test_without_a_key_or_a_time_each_call_is_a_new_signal(
    db: Connection, options: dict[str, Any]
) -> None:
    waitpoint = await pending(db, await leased(db))
    same = uuid4()

    for _ in range(2):
        await accepted(db, waitpoint, signal_id=same, **options)

    assert len(await kept(db, waitpoint)) == 2
    assert await db.fetchval("SELECT count(*) FROM ff.signal_dedup") == 0


# What is kept.


async def test_a_pending_waitpoint_keeps_the_newest_signals(db: Connection) -> None:
    waitpoint = await pending(db, await leased(db))

    for name in ("one", "two", "three", "four"):
        await accepted(db, waitpoint, name, signal_maxlen=2)

    assert await kept(db, waitpoint) == ["three", "four"]
    assert (await waitpoint_row(db, waitpoint))["signal_count"] == 4
    await accepted(db, waitpoint, "five", signal_maxlen=1)
    assert await kept(db, waitpoint) == ["five"]


async def test_an_active_waitpoint_drops_the_oldest_that_does_not_count(db: Connection) -> None:
    held = await suspended(db, CountOf(3, ("a",), "signals", "go"))
    waitpoint = held.waitpoints["a"]

    for name in ("no-1", "go", "no-2", "no-3"):
        await accepted(db, waitpoint, name, signal_maxlen=3)
    assert await kept(db, waitpoint) == ["go", "no-2", "no-3"]
    for name in ("go", "go"):
        last = await accepted(db, waitpoint, name, signal_maxlen=1)

    assert last.effect is RESUMES
    assert await kept(db, waitpoint) == ["go", "go", "go"], "no signal that counts is dropped"


async def test_a_signal_that_does_not_count_is_dropped_itself_if_the_others_do(
    db: Connection,
) -> None:
    held = await suspended(db, AllConditions((Single("a", "go"), Single("b"))))
    await accepted(db, held.waitpoints["a"], "go", signal_maxlen=1)

    answer = await accepted(db, held.waitpoints["a"], "no", signal_maxlen=1)

    assert answer.effect is APPENDED
    assert await kept(db, held.waitpoints["a"]) == ["go"]
    assert (await waitpoint_row(db, held.waitpoints["a"]))["signal_count"] == 2
