"""Submitting: what a submit says is what is stored, once, in the order given."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from flowfabric import (
    App,
    Client,
    Ctx,
    ExecutionFailed,
    ExecutionId,
    IdempotencyConflict,
    NotFound,
    Retry,
    ValidationError,
)
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.states import PublicState
from tests import given
from tests.worker.facts import count, creating_transactions, eventually

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def app() -> App:
    """An app with one task that doubles."""
    made = App()

    @made.task("double", lane="maths", retry=Retry(max_retries=2), priority=3, requires={"alu"})
    async def double(ctx: Ctx, number: int) -> int:
        return 2 * number

    return made


def double(app: App, number: int) -> Any:
    return app.tasks["double"].call(number)


async def test_what_is_submitted_is_run_by_a_worker_and_its_result_comes_back(
    client: Client, ff_dsn: str, app: App
) -> None:
    async with app.worker(dsn=ff_dsn, capabilities={"alu"}):
        handle = await client.submit(double(app, 21))

        assert handle.created
        assert await handle.result(timeout=10) == 42
        assert await handle.result(timeout=10) == 42
        assert await handle.state() is PublicState.COMPLETED


async def test_a_submit_stores_what_the_task_and_the_call_say(
    client: Client, db: Connection, app: App
) -> None:
    handle = await client.submit(double(app, 1), tags={"shop.tenant": "acme", "a.b": "c"})

    snapshot = await handle.describe()
    assert (snapshot.execution_kind, snapshot.lane_id) == ("double", "maths")
    assert (snapshot.priority, snapshot.namespace) == (3, "default")
    assert snapshot.required_capabilities == ["alu"]
    assert snapshot.tags == {"a.b": "c", "shop.tenant": "acme"}
    assert snapshot.public_state is PublicState.WAITING
    assert "@" in str(snapshot.creator_identity)
    body = await db.fetchrow("SELECT payload, payload_encoding, policy FROM ff.exec_body")
    assert body is not None
    assert (body["payload"], body["payload_encoding"]) == (b'{"number":1}', "json")
    assert '"max_retries": 2' in body["policy"]


async def test_a_submit_may_say_otherwise_than_the_task(client: Client, app: App) -> None:
    handle = await client.submit(double(app, 1), priority=7, lane="physics", deadline=90)

    snapshot = await handle.describe()
    assert (snapshot.priority, snapshot.lane_id) == (7, "physics")
    assert snapshot.deadline_at is not None
    assert (
        timedelta(seconds=89) < snapshot.deadline_at - snapshot.created_at < timedelta(seconds=91)
    )


@pytest.mark.parametrize("delay", [0.4, timedelta(milliseconds=400)], ids=["seconds", "timedelta"])
async def test_a_delayed_submit_runs_when_its_time_has_come(
    client: Client, ff_dsn: str, app: App, delay: Any
) -> None:
    async with app.worker(dsn=ff_dsn, capabilities={"alu"}):
        handle = await client.submit(double(app, 1), delay=delay)
        assert await handle.state() is PublicState.DELAYED
        assert await handle.result(timeout=10) == 2

    snapshot = await handle.describe()
    assert snapshot.started_at is not None
    assert snapshot.started_at - snapshot.created_at >= timedelta(milliseconds=400)


async def test_a_moment_to_start_must_carry_a_time_zone(client: Client, app: App) -> None:
    later = await client.submit(double(app, 1), delay_until=datetime(2999, 1, 1, tzinfo=UTC))

    assert (await later.describe()).delay_until == datetime(2999, 1, 1, tzinfo=UTC)
    with pytest.raises(ValidationError, match="time zone"):
        await client.submit(double(app, 1), delay_until=datetime(2999, 1, 1))


async def test_the_same_key_gives_the_first_execution_again(
    client: Client, ff_dsn: str, db: Connection, app: App
) -> None:
    first = await client.submit(double(app, 1), idempotency_key="order-1")
    again = await client.submit(double(app, 1), idempotency_key="order-1")
    with pytest.raises(IdempotencyConflict, match=r"order-1.*another payload") as raised:
        await client.submit(double(app, 99), idempotency_key="order-1")
    old_way = await client.submit(double(app, 9), idempotency_key="order-1", on_conflict="return")
    other = await client.submit(double(app, 3), idempotency_key="order-2")

    assert (first.created, again.created, other.created) == (True, False, True)
    assert again.execution_id == first.execution_id != other.execution_id
    assert old_way.execution_id == raised.value.execution_id == first.execution_id
    await app.worker(dsn=ff_dsn, capabilities={"alu"}).run_until_idle()
    assert await again.result(timeout=10) == 2
    assert await count(db) == 2


async def test_the_same_key_of_many_at_once_is_still_one_execution(
    client: Client, db: Connection, app: App
) -> None:
    handles = await asyncio.gather(
        *(client.submit(double(app, 1), idempotency_key="one") for _ in range(20))
    )

    assert len({handle.execution_id for handle in handles}) == 1
    assert sum(handle.created for handle in handles) == 1
    assert await count(db) == 1


async def test_a_conflict_among_submits_at_once_is_raised_only_where_it_is(
    client: Client, db: Connection, app: App
) -> None:
    await client.submit(double(app, 0), idempotency_key="key 3")

    answers = await asyncio.gather(
        *(client.submit(double(app, n + 1), idempotency_key=f"key {n}") for n in range(10)),
        return_exceptions=True,
    )

    refused = [n for n, each in enumerate(answers) if isinstance(each, IdempotencyConflict)]
    assert refused == [3]
    assert await count(db) == 10


async def test_many_with_a_key_each_are_submitted_once_and_a_conflict_submits_none(
    client: Client, db: Connection, app: App
) -> None:
    keys = ["a", None, "b"]
    calls = [double(app, n) for n in range(3)]
    first = await client.submit_many(calls, idempotency_keys=keys, idempotency_window=60)
    again = await client.submit_many(calls, idempotency_keys=keys)
    other = [double(app, 7), double(app, 8), double(app, 9)]

    with pytest.raises(IdempotencyConflict, match="'b'"):
        await client.submit_many(other, idempotency_keys=["new", None, "b"])
    with pytest.raises(ValidationError, match="idempotency_keys"):
        await client.submit_many(calls, idempotency_keys=["only one"])

    assert [each.created for each in first] == [True, True, True]
    assert [each.created for each in again] == [False, True, False]
    assert again[0].execution_id == first[0].execution_id
    assert await count(db) == 4
    returned = await client.submit_many(
        other, idempotency_keys=["new", None, "b"], on_conflict="return"
    )
    assert [each.created for each in returned] == [True, True, False]


async def test_a_key_belongs_to_its_namespace(ff_dsn: str, db: Connection, app: App) -> None:
    for namespace in ("here", "there"):
        async with await Client.connect(ff_dsn, namespace=namespace) as client:
            assert (await client.submit(double(app, 1), idempotency_key="k")).created

    assert await count(db) == 2


async def test_many_are_submitted_in_one_transaction_and_answered_in_order(
    client: Client, ff_dsn: str, db: Connection, app: App
) -> None:
    handles = await client.submit_many(
        [double(app, number) for number in range(50)], tags={"a.b": "c"}, priority=1
    )

    assert await creating_transactions(db) == 1
    await app.worker(dsn=ff_dsn, capabilities={"alu"}).run_until_idle()
    results = [await handle.result(timeout=10) for handle in handles]
    assert results == [2 * number for number in range(50)]


async def test_many_may_be_none(client: Client, db: Connection) -> None:
    assert await client.submit_many([]) == []
    assert await count(db) == 0


async def test_submits_at_the_same_time_share_their_transactions(
    client: Client, db: Connection, app: App
) -> None:
    handles = await asyncio.gather(*(client.submit(double(app, n)) for n in range(32)))

    assert len({handle.execution_id for handle in handles}) == 32
    assert await count(db) == 32
    assert await creating_transactions(db) <= 4
    payloads = {
        handle.execution_id: f'{{"number":{number}}}'.encode()
        for number, handle in enumerate(handles)
    }
    for row in await db.fetch("SELECT partition_key, execution_id, payload FROM ff.exec_body"):
        assert payloads[ExecutionId(row["partition_key"], row["execution_id"])] == row["payload"]


@pytest.mark.parametrize(
    "impossible",
    [{"delay": 1e20}, {"deadline": 1e20}, {"delay": float("inf")}, {"deadline": float("nan")}],
    ids=str,
)
async def test_a_submit_that_cannot_be_stored_does_not_spoil_the_others_of_its_time(
    client: Client, db: Connection, app: App, impossible: dict[str, Any]
) -> None:
    answers = await asyncio.gather(
        client.submit(double(app, 1)),
        client.submit(double(app, 2), **impossible),
        client.submit(double(app, 3)),
        return_exceptions=True,
    )

    assert [type(answer).__name__ for answer in answers] == ["Handle", "ValidationError", "Handle"]
    assert await count(db) == 2


async def test_a_submitter_that_gives_up_does_not_take_the_others_along(
    client: Client, db: Connection, app: App
) -> None:
    impatient = asyncio.create_task(client.submit(double(app, 1)))
    patient = [asyncio.create_task(client.submit(double(app, n))) for n in (2, 3)]
    await asyncio.wait({impatient}, timeout=0)  # it is on its way
    impatient.cancel()

    handles = await asyncio.gather(*patient)

    assert [await handle.state() for handle in handles] == [PublicState.WAITING] * 2
    with pytest.raises(asyncio.CancelledError):
        await impatient


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"lane": "ü"}, "lane"),
    ({"tags": {"Bad Key": "x"}}, "tag key"),
    ({"tags": {"a.b": "x\x00"}}, "NUL"),
    ({"idempotency_key": ""}, "idempotency_key"),
    ({"idempotency_key": "x" * 1025}, "idempotency_key"),
    ({"idempotency_key": "\ud800"}, "surrogate"),
]


@pytest.mark.parametrize(("options", "why"), REFUSED, ids=[str(ascii(o)) for o, _ in REFUSED])
async def test_an_option_that_cannot_be_honoured_is_refused_before_anything_is_stored(
    client: Client, db: Connection, app: App, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValidationError, match=why):
        await client.submit(double(app, 1), **options)

    assert await count(db) == 0


async def test_a_search_finds_by_lane_kind_state_and_tag_newest_first(
    client: Client, db: Connection, app: App
) -> None:
    first = await client.submit(double(app, 1), tags={"shop.tenant": "acme"})
    second = await client.submit(double(app, 2), lane="other")
    third = await client.submit(double(app, 3), tags={"shop.tenant": "acme"})
    await third.cancel()

    async def found(**search: Any) -> list[ExecutionId]:
        page = await client.search(**search)
        return [one.execution_id for one in page.executions]

    everything = await found()
    assert set(everything) == {h.execution_id for h in (first, second, third)}
    assert await found(lane="other") == [second.execution_id]
    assert await found(kind="nothing") == []
    assert await found(state="cancelled") == [third.execution_id]
    assert await found(state=PublicState.WAITING, lane="maths") == [first.execution_id]
    tagged = await found(tag=("shop.tenant", "acme"))
    assert set(tagged) == {third.execution_id, first.execution_id}


async def test_a_search_goes_page_by_page_through_its_own_namespace(
    client: Client, ff_dsn: str, app: App
) -> None:
    async with await Client.connect(ff_dsn, namespace="foreign") as foreign:
        await foreign.submit(double(app, 0))
    handles = await client.submit_many([double(app, n) for n in range(7)])

    seen, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        page = await client.search(limit=3, cursor=cursor)
        seen += [one.execution_id for one in page.executions]
        cursor, pages = page.next_cursor, pages + 1

    assert pages == 3
    assert sorted(seen) == sorted(handle.execution_id for handle in handles)


@pytest.mark.parametrize("search", [{"state": "nonsense"}, {"cursor": "?"}, {"limit": 0}], ids=str)
async def test_a_search_that_cannot_be_is_refused(client: Client, search: Any) -> None:
    with pytest.raises(ValidationError):
        await client.search(**search)


UNKNOWN = "{fp:7}:0190e0ee-36ae-7c13-9fcc-2703a5f6b358"


@pytest.mark.parametrize("call", ["describe", "state", "result", "cancel"])
async def test_an_execution_that_never_was_is_not_found(client: Client, call: str) -> None:
    with pytest.raises(NotFound, match="does not exist"):
        await getattr(client.handle(UNKNOWN), call)()


@pytest.mark.parametrize("text", ["", "nonsense", "{fp:1}:x", "{fp:256}:" + UNKNOWN[-36:]])
async def test_an_id_that_is_none_is_refused(client: Client, text: str) -> None:
    with pytest.raises(ValidationError, match="execution_id"):
        client.handle(text)


async def test_the_client_itself_describes_and_cancels_by_id(
    client: Client, db: Connection, app: App
) -> None:
    handle = await client.submit(double(app, 1))

    await client.cancel(str(handle.execution_id), "not needed")

    snapshot = await client.describe(str(handle.execution_id))
    assert (snapshot.public_state, snapshot.cancellation_reason) == ("cancelled", "not needed")
    assert await given.completion_events(db, handle.execution_id) == ["cancelled"]


async def test_attempts_are_listed_while_one_runs_and_after(client: Client, ff_dsn: str) -> None:
    app, gate = App(), asyncio.Event()

    @app.task("job")
    async def job(ctx: Ctx) -> None:
        await gate.wait()

    handle = await client.submit(job.call())
    assert await handle.attempts() == []
    async with app.worker(dsn=ff_dsn):
        [running] = await eventually(handle.attempts)
        assert running.outcome is None
        gate.set()
        await handle.result(timeout=10)

    [ended] = await handle.attempts()
    assert (ended.attempt_index, ended.outcome) == (0, "success")


async def test_an_operator_acts_in_place_of_a_worker(client: Client, db: Connection) -> None:
    app = App()

    @app.task("job")
    async def job(ctx: Ctx) -> dict[str, int]:
        raise AssertionError("not run")

    completed, failed, delayed = [await client.submit(job.call()) for _ in range(3)]
    await claim(db, given.WORKER, ttl=30, limit=3)

    await client.admin.complete(completed.execution_id, {"n": 1}, reason="by hand")
    await client.admin.fail(str(failed.execution_id), "by hand")
    await client.admin.delay(delayed.execution_id, 60)

    assert await completed.result(timeout=5) == {"n": 1}
    with pytest.raises(ExecutionFailed, match="by hand"):
        await failed.result(timeout=5)
    assert await delayed.state() == "delayed"
    with pytest.raises(ValidationError, match="result"):
        await client.admin.complete(completed.execution_id, object())
