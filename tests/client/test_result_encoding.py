"""A result is read with the encoding that it was written with, by whichever way it is read."""

from typing import Any

import msgspec
import pytest

from flowfabric import App, Client, Ctx, Fail, NotFound
from flowfabric.app.codec import MSGPACK
from flowfabric.app.flow import Flow
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.read_outcomes import read_outcomes
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from tests import given
from tests.worker import crunching

pytestmark = pytest.mark.timeout(30)


class Point(msgspec.Struct):
    x: int


@pytest.fixture
def app() -> App:
    """Tasks whose results are bytes that would also be JSON, and one of each other kind."""
    made = App()

    @made.task("raw")
    async def raw(ctx: Ctx) -> bytes:
        return b"123"

    @made.task("raw or none")
    async def raw_or_none(ctx: Ctx, number: int) -> bytes | None:
        return b"123" if number else None

    @made.task("unannotated")
    async def unannotated(ctx: Ctx):  # type: ignore[no-untyped-def]
        return b"123"

    @made.task("copy")
    async def copy(ctx: Ctx, data: bytes) -> bytes:
        return data

    @made.task("count")
    async def count(ctx: Ctx, data: bytes) -> int:
        return len(data)

    @made.task("point")
    async def point(ctx: Ctx) -> Point:
        return Point(1)

    @made.task("packed", codec=MSGPACK)
    async def packed(ctx: Ctx, data: bytes) -> dict[str, int]:
        return {"length": len(data)}

    @made.task("in a transaction")
    async def in_a_transaction(ctx: Ctx) -> bytes:
        await (await ctx.transaction()).execute("SELECT 1")
        return b"123"

    @made.task("upstreams")
    async def upstreams(ctx: Ctx) -> list[str]:
        return [repr(value) for value in (await ctx.upstreams()).values()]

    @made.task("seen")
    async def seen(ctx: Ctx) -> list[str]:
        said = [repr(await ctx.upstreams(point)), repr(await ctx.upstream(point, "b"))]
        for task, answer in ((point, "which?"), (raw, "no such")):
            try:
                await ctx.upstream(task)
            except (Fail, NotFound):
                said.append(answer)
        return said

    @made.task("parent")
    async def parent(ctx: Ctx) -> str:
        return repr(await ctx.gather([raw.call(), copy.call(b"7")]))

    return made


@pytest.mark.parametrize(
    ("kind", "arguments", "result"),
    [
        ("raw", (), b"123"),
        ("raw or none", (1,), b"123"),
        ("raw or none", (0,), None),
        ("unannotated", (), b"123"),
        ("copy", (b'"text"',), b'"text"'),
        ("count", (b"123",), 3),
        ("packed", (b"123",), {"length": 3}),
        pytest.param(
            *("in a transaction", (), b"123"),
            marks=pytest.mark.direct("transactions of handlers need the database itself"),
        ),
        ("parent", (), "[b'123', b'7']"),
    ],
)
async def test_a_handle_of_an_id_reads_what_the_handle_of_the_task_reads(
    client: Client, ff_dsn: str, app: App, kind: str, arguments: tuple[Any, ...], result: object
) -> None:
    handle = await client.submit(app.tasks[kind].call(*arguments))
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert await handle.result(timeout=10) == result
    assert await client.handle(handle.execution_id).result(timeout=10) == result


async def test_a_typed_result_is_still_decoded_by_its_type(
    client: Client, ff_dsn: str, app: App
) -> None:
    handle = await client.submit(app.tasks["point"].call())
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert await handle.result(timeout=10) == Point(1)
    assert await client.handle(handle.execution_id).result(timeout=10) == {"x": 1}


async def test_a_flow_and_its_members_read_the_bytes_that_a_member_returned(
    client: Client, ff_dsn: str, app: App
) -> None:
    flow = Flow("bytes")
    first = flow.add(app.tasks["raw"].call(), name="first")
    flow.add(app.tasks["upstreams"].call(), name="second").after(first)
    handle = await client.start(flow)

    await app.worker(dsn=ff_dsn).run_until_idle()

    assert await handle.result(timeout=10) == {"first": b"123", "second": ["b'123'"]}


async def test_a_flow_its_members_and_their_handlers_read_results_by_the_types_of_the_tasks(
    client: Client, ff_dsn: str, app: App
) -> None:
    flow = Flow("typed")
    drawn = [flow.add(app.tasks["point"].call(), name=name) for name in ("a", "b")]
    flow.add(app.tasks["seen"].call(), name="seen").after(*drawn)
    flow.add(app.tasks["upstreams"].call(), name="all").after(*drawn)
    handle = await client.start(flow, idempotency_key="typed")

    await app.worker(dsn=ff_dsn).run_until_idle()

    results = await handle.result(timeout=10)
    assert results == {
        "a": Point(1),
        "b": Point(1),
        "seen": ["{'a': Point(x=1), 'b': Point(x=1)}", "Point(x=1)", "which?", "no such"],
        "all": ["Point(x=1)", "Point(x=1)"],
    }
    assert results.of(drawn[0]) == Point(1)
    for wanted in (drawn[0], "a"):
        assert await (await handle.member(wanted)).result(timeout=10) == Point(1)
    untyped = client.flow(handle.flow_id)
    assert (await untyped.result(timeout=10))["a"] == {"x": 1}
    assert await (await untyped.member(drawn[0])).result(timeout=10) == Point(1)
    assert (await client.flow(handle.flow_id, flow).result(timeout=10))["a"] == Point(1)


async def test_a_flow_that_was_drawn_otherwise_is_read_without_types(
    client: Client, ff_dsn: str, app: App
) -> None:
    flow, other = Flow("first"), Flow("other")
    flow.add(app.tasks["count"].call(b"123"), name="a")
    drawn = other.add(app.tasks["point"].call(), name="a")
    await client.start(flow, idempotency_key="same")
    handle = await client.start(other, idempotency_key="same", on_conflict="return")

    await app.worker(dsn=ff_dsn).run_until_idle()

    assert await handle.result(timeout=10) == {"a": 3}
    with pytest.raises(NotFound, match="member"):
        await handle.member(drawn)
    with pytest.raises(NotFound, match="result of member"):
        (await handle.result(timeout=10)).of(other.add(app.tasks["raw"].call(), name="b"))


async def test_bytes_that_are_passed_to_a_member_stay_bytes(
    client: Client, ff_dsn: str, app: App, db: Connection
) -> None:
    flow = Flow("passed")
    first = flow.add(app.tasks["raw"].call(), name="first")
    flow.add(app.tasks["copy"].call(b""), name="second").after(first, feed=True)
    handle = await client.start(flow)

    await app.worker(dsn=ff_dsn).run_until_idle()

    assert (await handle.result(timeout=10))["second"] == b"123"
    encodings = await db.fetch("SELECT payload_encoding FROM ff.exec_body WHERE payload = '123'")
    assert [row["payload_encoding"] for row in encodings] == ["bytes"]


async def test_bytes_from_a_child_process_stay_bytes(client: Client, ff_dsn: str) -> None:
    handle = await client.submit(crunching.app.tasks["raw"].call(b"321"))
    await crunching.app.worker(dsn=ff_dsn).run_until_idle()

    assert await client.handle(handle.execution_id).result(timeout=10) == b"123"


@pytest.mark.parametrize(
    ("stored", "encoding", "read"),
    [
        (b"123", None, 123),
        (b"123", "json", 123),
        (b"\xff", None, b"\xff"),
        (b'"\xff"', "json", b'"\xff"'),
        (b"123", "bytes", b"123"),
        (b"\x7b", "msgpack", 123),
        (b"123", "a codec of their own", b"123"),
    ],
)
async def test_the_holder_of_a_lease_says_how_a_result_is_encoded(
    client: Client, db: Connection, stored: bytes, encoding: str | None, read: object
) -> None:
    lease = await given.claimed(db, payload_encoding="json")

    await complete(db, [Completion(lease, stored, encoding)])

    assert await client.handle(lease.execution_id).result(timeout=10) == read
    outcome = (await read_outcomes(db, [lease.execution_id]))[lease.execution_id]
    assert (outcome.result, outcome.result_encoding) == (stored, encoding or "json")


async def test_encodings_of_one_batch_stay_with_their_results(
    ff_engine: Engine, db: Connection
) -> None:
    ids = [await given.created(db, payload_encoding="json") for _ in range(3)]
    tasks = await claim(db, given.WORKER, ttl=30, limit=3)
    encodings = dict(zip(ids, (None, "bytes", "msgpack"), strict=True))

    await ff_engine.complete(
        [Completion(task.lease, b"1", encodings[task.lease.execution_id]) for task in tasks]
    )

    outcomes = await ff_engine.read_outcomes(ids)
    assert [outcomes[each].result_encoding for each in ids] == ["json", "bytes", "msgpack"]
