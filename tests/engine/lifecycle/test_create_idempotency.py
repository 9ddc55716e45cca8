"""Once for each live key: idempotency keys of create_execution."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.search_executions import Search, search_executions
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.create_execution import Created, Duplicate, create_execution
from flowfabric.errors import IdempotencyConflict, ValidationError
from flowfabric.ids import ExecutionId, key_partition
from flowfabric.policy import DAY_MS, ExecutionPolicy
from flowfabric.testing import Clock
from tests import given

Another = Callable[[], Awaitable[Connection]]


async def test_the_same_key_again_answers_the_first_execution_and_changes_nothing(
    db: Connection,
) -> None:
    first = await given.created(db, idempotency_key="order-7", input_payload=b"one")
    before = await given.everything(db)

    [answer] = await create_execution(
        db, [given.new(idempotency_key="order-7", input_payload=b"one", priority=9)]
    )

    assert answer == Duplicate(execution_id=first)
    assert await given.everything(db) == before


@pytest.mark.parametrize(
    ("fields", "differs"),
    [
        ({"input_payload": b"two"}, ("payload",)),
        ({"execution_kind": "other"}, ("kind",)),
        ({"input_payload": b"two", "execution_kind": "other"}, ("kind", "payload")),
    ],
)
async def test_the_same_key_with_another_payload_or_kind_is_a_conflict_that_says_what_differs(
    db: Connection, fields: dict[str, Any], differs: tuple[str, ...]
) -> None:
    await given.created(db, execution_kind="other")
    first = await given.created(db, idempotency_key="order-7", input_payload=b"one")
    before = await given.everything(db)
    new = given.new(idempotency_key="order-7", **{"input_payload": b"one"} | fields)

    [conflict] = await create_execution(db, [new])
    [duplicate] = await create_execution(db, [msgspec.structs.replace(new, on_conflict="return")])

    assert isinstance(conflict, IdempotencyConflict)
    assert (conflict.idempotency_key, conflict.execution_id) == ("order-7", first)
    assert conflict.differs == differs
    assert "'order-7'" in str(conflict)
    assert f"another {differs[0]}" in str(conflict)
    assert duplicate == Duplicate(execution_id=first)
    assert await given.everything(db) == before


@pytest.mark.parametrize(
    ("payload", "is_same"),
    [
        (b'{"b":[1.0,"\\u00e9"], "a":null}', True),
        (b'{"a":null,"b":[1,"e"]}', False),
        (b'{"a":null,"b":[1,"\\u0000"]}', False),
        (b"not JSON", False),
        (b"\xff", False),
        (b"", False),
    ],
)
async def test_json_is_compared_as_a_value(db: Connection, payload: bytes, is_same: bool) -> None:
    json: dict[str, Any] = {"idempotency_key": "k", "payload_encoding": "json"}
    stored = '{"a":null,"b":[1,"é"]}'.encode()
    await given.created(db, **json, input_payload=stored)

    [answer] = await create_execution(db, [given.new(**json, input_payload=payload)])

    assert isinstance(answer, Duplicate) is is_same


async def test_a_submit_says_how_long_its_key_lives(db: Connection, clock: Clock) -> None:
    policy = ExecutionPolicy(dedup_window=5)
    fields: dict[str, Any] = {
        "idempotency_key": "order-7",
        "policy": policy,
        "idempotency_window": 60,
    }
    first = await given.created(db, **fields)
    await clock.advance(59.999)
    [inside] = await create_execution(db, [given.new(**fields)])
    await clock.advance(0.001)

    [after] = await create_execution(db, [given.new(**fields, input_payload=b"other")])

    assert inside == Duplicate(execution_id=first)
    assert isinstance(after, Created)


@pytest.mark.parametrize(
    "fields",
    [
        {"idempotency_window": 60},
        {"idempotency_window": 0, "idempotency_key": "k"},
        {"idempotency_window": "1", "idempotency_key": "k"},
        {"on_conflict": "ignore", "idempotency_key": "k"},
    ],
)
def test_a_window_or_an_answer_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(fields))):
        given.new(**fields)


async def test_the_same_key_and_the_same_id_again_is_a_duplicate(db: Connection) -> None:
    new = given.new(idempotency_key="order-7")
    await create_execution(db, [new])
    before = await given.everything(db)

    [answer] = await create_execution(db, [new])

    assert answer == Duplicate(execution_id=new.execution_id)
    assert await given.everything(db) == before


async def test_a_key_is_taken_while_its_execution_runs_and_after_it_ended(db: Connection) -> None:
    lease = await given.claimed(db, idempotency_key="order-7")
    [running] = await create_execution(db, [given.new(idempotency_key="order-7")])
    await complete(db, [Completion(lease)])

    [ended] = await create_execution(db, [given.new(idempotency_key="order-7")])

    assert running == ended == Duplicate(execution_id=lease.execution_id)


async def test_a_key_is_free_again_exactly_when_its_window_ends(
    db: Connection, clock: Clock
) -> None:
    first = await given.created(db, idempotency_key="order-7")
    await clock.advance(timedelta(milliseconds=DAY_MS - 1))
    [inside] = await create_execution(db, [given.new(idempotency_key="order-7")])
    await clock.advance(timedelta(milliseconds=1))

    after = given.new(idempotency_key="order-7")
    [created] = await create_execution(db, [after])
    [again] = await create_execution(db, [given.new(idempotency_key="order-7")])

    assert inside == Duplicate(execution_id=first)
    assert isinstance(created, Created)
    assert created.execution_id == after.execution_id
    assert again == Duplicate(execution_id=after.execution_id)
    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 2
    assert await db.fetchval("SELECT expires_at_ms FROM ff.exec_idempotency") == (
        await clock.now_ms() + DAY_MS
    )


async def test_the_policy_says_how_long_a_key_lives(db: Connection, clock: Clock) -> None:
    policy = ExecutionPolicy(dedup_window=5)
    first = await given.created(db, idempotency_key="order-7", policy=policy)
    await clock.advance(4.999)
    [inside] = await create_execution(db, [given.new(idempotency_key="order-7", policy=policy)])
    await clock.advance(0.001)

    [after] = await create_execution(db, [given.new(idempotency_key="order-7", policy=policy)])

    assert inside == Duplicate(execution_id=first)
    assert isinstance(after, Created)


async def test_a_duplicate_does_not_lengthen_the_window(db: Connection, clock: Clock) -> None:
    await given.created(db, idempotency_key="order-7")
    expiry = await db.fetchval("SELECT expires_at_ms FROM ff.exec_idempotency")
    await clock.advance(timedelta(hours=1))

    await create_execution(db, [given.new(idempotency_key="order-7")])

    assert await db.fetchval("SELECT expires_at_ms FROM ff.exec_idempotency") == expiry


async def test_one_key_in_two_namespaces_is_two_executions(db: Connection) -> None:
    answers = await create_execution(
        db,
        [
            given.new(idempotency_key="order-7", namespace="acme"),
            given.new(idempotency_key="order-7", namespace="other"),
        ],
    )

    assert [type(answer) for answer in answers] == [Created, Created]
    assert answers[0].execution_id != answers[1].execution_id


async def test_one_key_in_two_lanes_is_one_execution(db: Connection) -> None:
    first = await given.created(db, idempotency_key="order-7", lane_id="a")

    [answer] = await create_execution(db, [given.new(idempotency_key="order-7", lane_id="b")])

    assert answer == Duplicate(execution_id=first)


async def test_the_first_of_a_batch_has_the_key(db: Connection) -> None:
    batch = [
        given.new(idempotency_key="a", input_payload=b"0"),
        given.new(input_payload=b"1"),
        given.new(idempotency_key="a", input_payload=b"2"),
        given.new(idempotency_key="b", input_payload=b"3"),
        given.new(idempotency_key="a", input_payload=b"4"),
    ]

    answers = await create_execution(db, batch)

    conflict = IdempotencyConflict
    assert [type(answer) for answer in answers] == [Created, Created, conflict, Created, conflict]
    assert answers[2].execution_id == answers[4].execution_id == batch[0].execution_id
    claimed = await claim(db, given.WORKER, ttl=30, limit=10)
    assert sorted(task.input_payload for task in claimed) == [b"0", b"1", b"3"]


async def test_the_first_of_a_batch_has_the_id_and_the_second_adds_nothing(
    db: Connection,
) -> None:
    first = given.new(input_payload=b"first", tags={"a.first": "1"}, execution_kind="z")
    second = given.new(
        execution_id=first.execution_id,
        input_payload=b"second",
        tags={"a.second": "2"},
        execution_kind="a",
        priority=9,
        delay=60,
    )

    answers = await create_execution(db, [first, second])

    assert [type(answer) for answer in answers] == [Created, Duplicate]
    [task] = await claim(db, given.WORKER, ttl=30, limit=10)
    assert (task.input_payload, task.execution_kind) == (b"first", "z")
    assert task.tags == {"a.first": "1"}
    found = await search_executions(db, Search(tag=("a.second", "2")))
    assert found.executions == []


async def test_an_execution_that_exists_leaves_a_new_key_free(db: Connection) -> None:
    home = key_partition("default", "late")
    existing = await given.created(db, execution_id=ExecutionId(home, ExecutionId.mint().uuid))
    [answer] = await create_execution(
        db, [given.new(execution_id=existing, idempotency_key="late")]
    )

    [fresh] = await create_execution(db, [given.new(idempotency_key="late")])

    assert answer == Duplicate(execution_id=existing)
    assert isinstance(fresh, Created)


@pytest.mark.parametrize("ends", ["commit", "rollback"])
async def test_a_second_creator_waits_for_the_first_and_heeds_how_it_ends(
    db: Connection, another: Another, ends: str
) -> None:
    first, second = await another(), await another()
    transaction = first.transaction()
    await transaction.start()
    winner = await given.created(first, idempotency_key="order-7")
    late = given.new(idempotency_key="order-7", input_payload=b"another")
    waiting = await given.blocked(db, second, create_execution(second, [late]))

    await (transaction.commit() if ends == "commit" else transaction.rollback())
    [answer] = await waiting

    if ends == "commit":
        assert isinstance(answer, IdempotencyConflict)
        assert answer.execution_id == winner
    else:
        assert isinstance(answer, Created)
        assert answer.execution_id == late.execution_id
    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 1


async def test_a_second_creator_of_one_id_waits_for_the_first(
    db: Connection, another: Another
) -> None:
    first, second = await another(), await another()
    new = given.new()
    async with first.transaction():
        await create_execution(first, [new])
        waiting = await given.blocked(db, second, create_execution(second, [new]))

    assert await waiting == [Duplicate(execution_id=new.execution_id)]


async def test_batches_with_the_same_keys_in_opposite_order_do_not_deadlock(
    db: Connection, another: Another
) -> None:
    first, second = await another(), await another()
    keys = [f"key-{n}" for n in range(20)]
    async with first.transaction():
        created = await create_execution(first, [given.new(idempotency_key=key) for key in keys])
        waiting = await given.blocked(
            db,
            second,
            create_execution(second, [given.new(idempotency_key=key) for key in reversed(keys)]),
        )

    assert await waiting == [Duplicate(execution_id=a.execution_id) for a in reversed(created)]


async def test_an_expired_key_is_taken_over_by_one_of_two_creators(
    db: Connection, clock: Clock, another: Another
) -> None:
    await given.created(db, idempotency_key="order-7")
    await clock.advance(timedelta(milliseconds=DAY_MS))
    first, second = await another(), await another()
    async with first.transaction():
        winner = await given.created(first, idempotency_key="order-7")
        waiting = await given.blocked(
            db, second, create_execution(second, [given.new(idempotency_key="order-7")])
        )

    assert await waiting == [Duplicate(execution_id=winner)]


async def test_an_id_outside_the_partition_of_its_key_is_refused(db: Connection) -> None:
    home = key_partition("default", "order-7")
    astray = ExecutionId((home + 1) % 256, ExecutionId.mint().uuid)
    before = await given.everything(db)

    with pytest.raises(ValidationError, match=rf"execution_id .*\{{fp:{home}\}}"):
        await create_execution(db, [given.new(execution_id=astray, idempotency_key="order-7")])

    assert await given.everything(db) == before


async def test_python_and_sql_agree_on_the_partition_of_a_key(db: Connection) -> None:
    keys = ["", "order-7", "ключ", "a\x1fb", "x" * 1000]

    for key in keys:
        stored = await db.fetchval("SELECT ff.key_partition('näme', $1, 256)", key)
        assert stored == key_partition("näme", key)


async def test_the_record_of_a_key_lives_beside_its_execution(db: Connection) -> None:
    new = given.new(idempotency_key="order-7")
    await create_execution(db, [new])

    [record] = await db.fetch("SELECT * FROM ff.exec_idempotency")
    assert record["partition_key"] == new.execution_id.partition_key
    assert record["execution_id"] == new.execution_id.uuid
    assert (record["namespace"], record["idempotency_key"]) == ("default", "order-7")
