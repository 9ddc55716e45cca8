"""Bulk submits: chunk after chunk in one transaction, all or none."""

from typing import Any, cast

import pytest

from flowfabric import App, Client, Ctx, IdempotencyConflict, ValidationError
from flowfabric.db.rows import Connection
from tests.worker.facts import count

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A task; chunks of its executions are small."""
    monkeypatch.setattr("flowfabric.client.client.CHUNK", 3)
    app = App()

    @app.task("double")
    async def double(ctx: Ctx, number: int) -> int:
        return 2 * number

    return double


@pytest.mark.direct("a server takes 1,000 calls")
async def test_all_chunks_are_one_transaction_and_share_a_partition(
    client: Client, db: Connection, double: Any
) -> None:
    handles = await client.submit_many([double.call(n) for n in range(7)])

    rows = await db.fetch(
        "SELECT b.execution_id, b.payload, e.xmin::text FROM ff.exec_body b"
        "  JOIN ff.exec_core e USING (partition_key, execution_id) ORDER BY b.execution_id"
    )
    assert [row["execution_id"] for row in rows] == [each.execution_id.uuid for each in handles]
    assert [row["payload"] for row in rows] == [f'{{"number":{n}}}'.encode() for n in range(7)]
    assert len({row["xmin"] for row in rows}) == 1
    assert len({each.execution_id.partition_key for each in handles}) == 1


@pytest.mark.direct("a server takes 1,000 calls")
async def test_a_call_that_is_refused_while_the_chunk_before_is_in_flight_is_named(
    client: Client, db: Connection, double: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowfabric.engine.lifecycle.create_execution.MAX_PAYLOAD", 20)
    calls = [double.call(n) for n in range(4)]

    with pytest.raises(ValidationError, match="is over 20"):
        await client.submit_many([*calls, double.call(10**18)])

    assert await count(db) == 0
    assert len(await client.submit_many(calls)) == 4


@pytest.mark.direct("a server takes 1,000 calls")
async def test_what_is_no_call_is_named_and_nothing_is_submitted(
    client: Client, db: Connection, double: Any
) -> None:
    calls = [double.call(n) for n in range(4)]

    with pytest.raises(ValidationError, match="must be a call"):
        await client.submit_many([*calls, cast("Any", "no call")])

    assert await count(db) == 0
    assert len(await client.submit_many(calls)) == 4


@pytest.mark.direct("a server takes 1,000 calls")
async def test_a_conflict_that_is_answered_while_the_next_chunk_is_in_flight_submits_none(
    client: Client, db: Connection, double: Any
) -> None:
    await client.submit(double.call(0), idempotency_key="k-1")
    calls, keys = [double.call(n) for n in range(9)], [f"k-{n}" for n in range(9)]

    with pytest.raises(IdempotencyConflict, match="k-1"):
        await client.submit_many(calls, idempotency_keys=keys)

    assert await count(db) == 1
    handles = await client.submit_many(calls, idempotency_keys=keys, on_conflict="return")
    assert [each.created for each in handles] == [n != 1 for n in range(9)]
