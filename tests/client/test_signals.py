"""Signals of a client, and what it shows and does of handlers that wait."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from flowfabric import (
    App,
    Client,
    Ctx,
    ExecutionFailed,
    Fail,
    NotFound,
    PublicState,
    ResultTimeout,
    ValidationError,
    WaitpointToken,
    sync,
    verify_token,
)
from flowfabric.client import signals
from flowfabric.db.rows import Connection
from flowfabric.engine import SignalAccepted, SignalDuplicate
from flowfabric.engine.journal.start_compensations import start_compensations
from flowfabric.errors import (
    ExecutionNotSuspended,
    InvalidToken,
    MissingToken,
    TargetNotSignalable,
    TransportError,
)
from flowfabric.states import JournalKind, JournalState, SignalEffect
from tests import given
from tests.engine.executions.suspended import waiting_for_signal, waitpoint, with_key

pytestmark = pytest.mark.timeout(60)


class Approval(msgspec.Struct, frozen=True):
    by: str


@pytest.fixture
def app() -> App:
    """Handlers that wait, sleep, fail and compensate."""
    made = App()

    @made.task("order")
    async def order(ctx: Ctx, number: int) -> str:
        approval: Approval = await ctx.wait_for_signal("approved", type=Approval)
        return f"{number} approved by {approval.by}"

    @made.task("deploy")
    async def deploy(ctx: Ctx) -> list[Any]:
        point = await ctx.waitpoint("go", expires=timedelta(hours=1))
        found = await ctx.wait(point.count(2, distinct="sources"))
        return [each.source_identity for each in found]

    @made.task("nap")
    async def nap(ctx: Ctx) -> str:
        await ctx.sleep("long", timedelta(days=3))
        return "rested"

    @made.task("refund")
    async def refund(ctx: Ctx) -> str:
        return "refunded"

    @made.task("saga")
    async def saga(ctx: Ctx) -> None:
        await ctx.compensate(refund.call())
        raise Fail("no", retryable=False)

    @made.task("counted")
    async def counted(ctx: Ctx) -> int:
        first = await ctx.step("one", _one)
        if _BROKEN:
            raise Fail("broken", retryable=False)
        return first + await ctx.step("two", _one)

    return made


_BROKEN: list[bool] = []
_RUNS: list[int] = []


async def _one() -> int:
    _RUNS.append(1)
    return len(_RUNS)


# By name.


async def test_a_signal_resumes_the_handler_that_waits_for_it(
    client: Client, app: App, ff_dsn: str
) -> None:
    handle = await client.submit(app.tasks["order"].call(7))
    worker = app.worker(dsn=ff_dsn)
    await worker.run_until_idle()

    answer = await handle.signal("approved", Approval(by="ann"), idempotency_key="mail-77")
    again = await handle.signal("approved", Approval(by="bob"), idempotency_key="mail-77")
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert isinstance(answer, SignalAccepted)
    assert (answer.resumed, answer.duplicate) == (True, False)
    assert again == SignalDuplicate(existing_signal_id=answer.signal_id)
    assert (again.resumed, again.duplicate) == (False, True)
    assert await handle.result(timeout=5) == "7 approved by ann"


async def test_a_signal_waits_for_a_handler_that_has_not_begun_and_is_found_by_key(
    client: Client, app: App, ff_dsn: str
) -> None:
    handle = await client.submit(app.tasks["order"].call(7), idempotency_key="order-7")

    answer = await client.signal_key("order-7", "approved", {"by": "ann"})
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert isinstance(answer, SignalAccepted)
    assert answer.effect is SignalEffect.BUFFERED_IN_INBOX
    assert await handle.result(timeout=5) == "7 approved by ann"


async def test_signals_that_are_sent_at_once_share_a_transaction(
    client: Client, db: Connection
) -> None:
    made = [await given.created(db) for _ in range(3)]

    await asyncio.gather(*[client.handle(each).signal("x", n) for n, each in enumerate(made * 100)])

    sent = await db.fetchval("SELECT count(*) FROM ff.signal_inbox")
    assert sent == 300
    assert await db.fetchval("SELECT count(DISTINCT xmin::text) FROM ff.signal_inbox") < 20


async def test_a_signal_whose_answer_was_lost_is_not_sent_twice(
    client: Client, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution_id = await given.created(db)
    lost = [True]
    send = client.engine.send_signals

    async def lossy(requests: Any) -> Any:
        answers = await send(requests)
        if lost.pop() if lost else False:
            raise TransportError("the connection is gone")
        return answers

    monkeypatch.setattr(client.engine, "send_signals", lossy)
    client.signals = signals.SignalSender(client.engine)

    answer = await client.handle(execution_id).signal("x")

    assert isinstance(answer, SignalAccepted)
    assert await db.fetchval("SELECT count(*) FROM ff.signal_inbox") == 1


async def test_what_cannot_be_sent_is_refused_and_nothing_is_written(
    client: Client, db: Connection
) -> None:
    execution_id = await given.created(db)
    handle = client.handle(execution_id)

    with pytest.raises(ValidationError, match="signal_name"):
        await handle.signal("")
    with pytest.raises(ValidationError, match="payload 'a object' cannot be encoded"):
        await handle.signal("x", object())
    with pytest.raises(ValidationError, match="payload of 70002 bytes"):
        await handle.signal("x", "y" * 70_000)
    with pytest.raises(NotFound, match="with idempotency key 'nope' does not exist"):
        await client.signal_key("nope", "x")
    await handle.cancel()
    with pytest.raises(TargetNotSignalable):
        await handle.signal("x")
    assert await db.fetchval("SELECT count(*) FROM ff.signal_inbox") == 0


# With a token.


async def test_outsiders_with_the_token_signal_a_waitpoint(
    client: Client, db: Connection, app: App, ff_dsn: str
) -> None:
    await with_key(db)
    handle = await client.submit(app.tasks["deploy"].call())
    await app.worker(dsn=ff_dsn).run_until_idle()
    [point] = (await client.admin.waitpoints()).waitpoints
    token = await client.admin.waitpoint_token(handle.execution_id, str(point.waitpoint_id))

    async def vote(by: str, key: str | None = None) -> Any:
        return await client.signal(
            handle.execution_id,
            point.waitpoint_id,
            token=token.reveal(),
            name="approve",
            source=("user", by),
            payload={"by": by},
            idempotency_key=key,
        )

    first = await vote("ann", "k")
    repeated = await vote("ann", "k")
    same = await vote("ann")
    last = await vote("bob")
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert [each.resumed for each in (first, repeated, same, last)] == [False, False, False, True]
    assert [each.duplicate for each in (first, repeated, same)] == [False, True, False]
    assert await handle.result(timeout=5) == ["ann", "bob"]
    assert "REDACTED" in repr(token)


async def test_a_wrong_token_source_or_id_is_refused(client: Client, db: Connection) -> None:
    lease, point = await waitpoint(db)
    target = (lease.execution_id, point.waitpoint_id)

    with pytest.raises(InvalidToken):
        await client.signal(*target, token=f"k1:{'0' * 64}", name="x")
    with pytest.raises(MissingToken):
        await client.signal(*target, token="", name="x")
    with pytest.raises(ValidationError, match="source 'ann' must be a pair"):
        await client.signal(*target, token=point.token, name="x", source="ann")  # type: ignore[arg-type]  the wrong type is the point
    with pytest.raises(ValidationError, match="waitpoint_id 'x' must be a uuid"):
        await client.signal(lease.execution_id, "x", token=point.token, name="x")
    with pytest.raises(NotFound, match="waitpoint"):
        await client.admin.waitpoint_token(lease.execution_id, uuid4())


async def test_a_bridge_verifies_a_token_by_itself(db: Connection) -> None:
    lease, point = await waitpoint(db)
    secret = bytes.fromhex("ab" * 32)

    verify_token(secret, point.token, lease.execution_id, point.waitpoint_id)
    with pytest.raises(InvalidToken):
        verify_token(os.urandom(32), point.token, lease.execution_id, point.waitpoint_id)
    with pytest.raises(InvalidToken):
        verify_token(secret, WaitpointToken("k1:x"), lease.execution_id, point.waitpoint_id)


@pytest.mark.direct("the actor is the one of the token")
async def test_operators_approve_without_a_token_and_count_once(
    client: Client, db: Connection, app: App, ff_dsn: str
) -> None:
    await with_key(db)
    handle = await client.submit(app.tasks["deploy"].call())
    await app.worker(dsn=ff_dsn).run_until_idle()
    [point] = (await client.admin.waitpoints(lane="default")).waitpoints
    target = (handle.execution_id, point.waitpoint_id)

    client.admin.actor = "ann"
    first, again = await client.admin.approve(*target), await client.admin.approve(*target)
    client.admin.actor = "bob"
    last = await client.admin.deny(*target)
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert (first.resumed, again.duplicate, last.resumed) == (False, True, True)
    assert await handle.result(timeout=5) == ["ann", "bob"]


async def test_an_operator_closes_a_waitpoint_and_the_handler_goes_on(
    client: Client, db: Connection, app: App, ff_dsn: str
) -> None:
    await with_key(db)
    handle = await client.submit(app.tasks["deploy"].call())
    await app.worker(dsn=ff_dsn).run_until_idle()
    [point] = (await client.admin.waitpoints()).waitpoints
    target = (handle.execution_id, str(point.waitpoint_id))

    closed = await client.admin.close_waitpoint(*target, reason="nobody answers")
    again = await client.admin.close_waitpoint(*target, reason="another")
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert (closed.resumed, closed.repeated, again.repeated) == (True, False, True)
    assert closed.close_reason == again.close_reason == "nobody answers"
    with pytest.raises(ExecutionFailed, match=r"was closed \(nobody answers\)"):
        await handle.result(timeout=5)
    with pytest.raises(NotFound, match="waitpoint"):
        await client.admin.close_waitpoint(handle.execution_id, uuid4())


# What waits is resumed, woken, shown.


async def test_an_operator_resumes_what_is_suspended(client: Client, db: Connection) -> None:
    execution_id = await waiting_for_signal(db)

    resumed = await client.admin.resume(execution_id, reason="look again")

    assert resumed.public_state is PublicState.RESUMABLE
    with pytest.raises(ExecutionNotSuspended):
        await client.admin.resume(execution_id)


async def test_an_operator_ends_a_sleep(client: Client, app: App, ff_dsn: str) -> None:
    handle = await client.submit(app.tasks["nap"].call())
    await app.worker(dsn=ff_dsn).run_until_idle()

    await client.admin.wake(handle.execution_id)
    await app.worker(dsn=ff_dsn).run_until_idle()
    sleeps_on = await handle.state()
    woken = await client.admin.wake(handle.execution_id, skip=True)
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert (sleeps_on, woken.skipped) == (PublicState.DELAYED, "long#0")
    assert await handle.result(timeout=5) == "rested"


async def test_a_timeout_says_what_a_suspended_execution_waits_for(
    client: Client, db: Connection
) -> None:
    execution_id = await waiting_for_signal(db)
    plain = await given.created(db)

    with pytest.raises(ResultTimeout, match="waits for signal 'approved' since") as caught:
        await client.handle(execution_id).result(timeout=0.01)
    with pytest.raises(ResultTimeout, match="explain") as other:
        await client.handle(plain).result(timeout=0.01)

    assert "ff signals send" in (caught.value.explanation or "")
    assert other.value.explanation is None


async def test_the_compensation_of_an_execution_has_a_handle(
    client: Client, db: Connection, app: App, ff_dsn: str
) -> None:
    handle = await client.submit(app.tasks["saga"].call())
    none = await handle.compensation()
    await app.worker(dsn=ff_dsn).run_until_idle()
    async with db.transaction():
        await start_compensations(db, 10)
    compensation = await handle.compensation()

    assert none is None
    assert compensation is not None
    await app.worker(dsn=ff_dsn).run_until_idle()
    await compensation.result(timeout=10)


async def test_steps_are_listed_and_a_replay_begins_where_it_is_told_to(
    client: Client, app: App, ff_dsn: str
) -> None:
    _RUNS.clear()
    _BROKEN.append(True)
    handle = await client.submit(app.tasks["counted"].call())
    await app.worker(dsn=ff_dsn).run_until_idle()
    [step] = (await handle.steps(values=True)).steps
    _BROKEN.clear()

    await handle.replay()
    await app.worker(dsn=ff_dsn).run_until_idle()
    kept = await handle.result(timeout=5)
    await client.replay(handle.execution_id, from_step="two")
    await app.worker(dsn=ff_dsn).run_until_idle()
    second_anew = await handle.result(timeout=5)
    await handle.replay(from_="start")
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert (step.key, step.kind, step.state) == ("one#0", JournalKind.STEP, JournalState.DONE)
    assert step.value == b"1"
    assert (kept, second_anew) == (1 + 2, 1 + 3)
    assert await handle.result(timeout=5) == 4 + 5
    page = await handle.steps(limit=1)
    assert page.next_after_seq is not None
    assert len((await handle.steps(after_seq=page.next_after_seq)).steps) >= 1


async def test_the_blocking_client_signals_too(client: Client, db: Connection, ff_dsn: str) -> None:
    execution_id = await waiting_for_signal(db)

    def script() -> tuple[bool, int, Any]:
        with sync.Client.connect(ff_dsn) as blocking:
            handle = blocking.handle(execution_id)
            resumed = handle.signal("approved").resumed
            return resumed, len(handle.steps().steps), handle.compensation()

    assert await asyncio.to_thread(script) == (True, 0, None)


async def test_deliveries_can_be_followed(client: Client, db: Connection) -> None:
    execution_id = await given.created(db)
    async with await client.subscribe_signal_delivery() as events:
        await client.handle(execution_id).signal("x")
        event = await asyncio.wait_for(anext(aiter(events)), 5)

    assert (event.execution_id, event.signal_name) == (execution_id, "x")
