"""A unique key has one live execution, whatever transactions meet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.create_execution import Created, Creation, Duplicate, NewExecution
from flowfabric.engine.lifecycle.create_unique_execution import create_unique_execution
from flowfabric.engine.lifecycle.debounce_execution import debounce_execution
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.errors import IdempotencyConflict, UniqueKeyTaken
from flowfabric.ids import ExecutionId, key_partition, new_uuid
from flowfabric.policy import ExecutionPolicy, FixedBackoff, RetryPolicy
from flowfabric.testing import Clock
from tests import given

Another = Callable[[], Awaitable[Connection]]
KEY = "unique:job:k"


@pytest.fixture(autouse=True)
async def routed(db: Connection) -> None:
    """The routes exist: callers meet at the key, and not before."""
    await given.created(db, execution_kind="job")
    await given.created(db, execution_kind="other")


def new(**fields: Any) -> NewExecution:
    home = key_partition("default", KEY, 256)
    given_fields: dict[str, Any] = {
        "execution_kind": "job",
        "unique_until": "ended",
        "on_conflict": "return",
    }
    return NewExecution(
        execution_id=ExecutionId(home, new_uuid()), idempotency_key=KEY, **given_fields | fields
    )


async def created(conn: Connection, **fields: Any) -> Creation:
    async with conn.transaction():
        return await create_unique_execution(conn, new(), **fields)


async def alive(db: Connection) -> list[ExecutionId]:
    """The executions of the key that have not ended."""
    rows = await db.fetch(
        "SELECT partition_key, execution_id FROM ff.exec_core JOIN ff.exec_body"
        " USING (partition_key, execution_id)"
        " WHERE lifecycle_phase <> 'terminal' AND idempotency_key = $1",
        KEY,
    )
    return [ExecutionId(row["partition_key"], row["execution_id"]) for row in rows]


async def test_a_submit_that_waited_for_another_finds_its_execution(
    db: Connection, another: Another
) -> None:
    one, two = await another(), await another()
    async with one.transaction():
        first = await create_unique_execution(one, new())
        waiting = await given.blocked(db, two, created(two))

    assert isinstance(first, Created)
    assert await waiting == Duplicate(execution_id=first.execution_id)
    assert await alive(db) == [first.execution_id]


async def test_a_submit_that_waited_for_one_that_is_undone_makes_its_own(
    db: Connection, another: Another
) -> None:
    one, two = await another(), await another()
    undone = one.transaction()
    await undone.start()
    await create_unique_execution(one, new())
    waiting = await given.blocked(db, two, created(two))
    await undone.rollback()

    second = await waiting
    assert isinstance(second, Created)
    assert await alive(db) == [second.execution_id]


async def test_the_newest_wins_over_one_that_it_waited_for(
    db: Connection, another: Another
) -> None:
    one, two = await another(), await another()
    async with one.transaction():
        await create_unique_execution(one, new())
        waiting = await given.blocked(db, two, created(two, on_conflict="cancel_old"))

    second = await waiting
    assert isinstance(second, Created)
    assert await alive(db) == [second.execution_id]


async def test_a_replay_and_a_submit_do_not_both_get_the_key(
    db: Connection, another: Another
) -> None:
    one, two = await another(), await another()
    first = await created(db)
    assert isinstance(first, Created)
    await cancel_execution(db, first.execution_id, reason="no")
    async with one.transaction():
        await replay_execution(one, first.execution_id)
        waiting = await given.blocked(db, two, created(two))

    assert await waiting == Duplicate(execution_id=first.execution_id)

    await cancel_execution(db, first.execution_id, reason="no")
    async with one.transaction():
        second = await create_unique_execution(one, new())
        replayed = await given.blocked(db, two, _replay(two, first.execution_id))
    with pytest.raises(UniqueKeyTaken):
        await replayed
    assert isinstance(second, Created)
    assert await alive(db) == [second.execution_id]


async def test_a_debounce_does_not_change_an_execution_of_another_kind(db: Connection) -> None:
    async def debounced(kind: str, payload: bytes) -> Creation:
        call = new(execution_kind=kind, input_payload=payload, unique_until=None)
        async with db.transaction():
            return await debounce_execution(db, call, wait=5)

    first = await debounced("job", b"1")
    before = await given.everything(db)

    other = await debounced("other", b"2")

    assert isinstance(other, IdempotencyConflict)
    assert (other.execution_id, other.differs) == (first.execution_id, ("kind",))
    assert await given.everything(db) == before


async def test_a_retry_does_not_free_the_key(db: Connection, clock: Clock) -> None:
    retried = RetryPolicy(max_retries=1, backoff=FixedBackoff(delay=60))
    fields: dict[str, Any] = {"policy": ExecutionPolicy(retry_policy=retried), "priority": 9}
    async with db.transaction():
        first = await create_unique_execution(db, new(**fields))
    [task] = await claim(db, given.WORKER, ttl=30)
    await fail(db, [Failure(lease=task.lease, reason="again")])

    assert task.lease.execution_id == first.execution_id
    assert await created(db) == Duplicate(execution_id=first.execution_id)
    await clock.advance(60)
    await promote_due(db, 10)
    [task] = await claim(db, given.WORKER, ttl=30)
    assert await created(db) == Duplicate(execution_id=first.execution_id)
    await complete(db, [Completion(task.lease)])
    assert isinstance(await created(db), Created)


async def _replay(conn: Connection, execution_id: ExecutionId) -> None:
    async with conn.transaction():
        await replay_execution(conn, execution_id)
