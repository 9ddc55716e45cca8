"""A database with something of everything that the dashboard shows."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from flowfabric import App, Client, Ctx, Engine, Fail, QuotaLimits, Retry
from flowfabric.engine.lifecycle.create_execution import Created
from flowfabric.engine.schedules.definition import ScheduleDefinition
from flowfabric.ids import ExecutionId, new_uuid
from flowfabric.schedules.spec import spec_of
from flowfabric.states import PublicState
from tests import given
from tests.worker.facts import eventually

HOSTILE = "<img src=x onerror=alert(1)>\"'><script>alert(1)</script>{{7*7}}javascript:alert(1)"
"""A text that would become markup if anything did not escape it."""


class Busy(msgspec.Struct, kw_only=True):
    """The executions of the database, by what they show."""

    completed: ExecutionId
    failed: ExecutionId
    suspended: ExecutionId
    active: ExecutionId
    waiting: ExecutionId
    delayed: ExecutionId
    foreign: ExecutionId
    member: ExecutionId
    approval: ExecutionId
    waitpoint: UUID
    worker: str
    budget: UUID
    flow: UUID
    bulk: UUID
    quota: UUID

    def path(self, name: str) -> str:
        """The path of the page of this execution."""
        found: ExecutionId = getattr(self, name)
        return f"/executions/{found.partition_key}.{found.uuid}"


class Rollout(msgspec.Struct):
    """What people answer when they are asked about a release."""

    percent: Annotated[int, msgspec.Meta(ge=1, le=100, description=HOSTILE[:60])] = 100
    region: Literal["eu", "us"] | None = None
    notify: bool = False


def shop() -> App:
    """Tasks that succeed, fail, wait and go on for long."""
    app = App()

    @app.task("charge_card", retry=Retry(max_retries=1, initial=0.01))
    async def charge_card(ctx: Ctx, order: dict[str, Any]) -> dict[str, Any]:
        if order["total"] > 900:
            raise ConnectionError(f"the bank did not answer: {HOSTILE}")
        if order["total"] > 500:
            raise Fail("declined", category="declined", retryable=False)
        return {"receipt": 12345678901234567890123, "total": order["total"]}

    async def reserve(order_id: str) -> dict[str, str]:
        return {"shelf": f"shelf-{order_id}", "password": "hunter2"}

    @app.task("fulfil_order", lane="orders")
    async def fulfil_order(ctx: Ctx, order_id: str) -> str:
        await ctx.step("reserve", reserve, order_id)
        await ctx.wait_for_signal("approved", type=dict, timeout=timedelta(days=3))
        return "shipped"

    @app.task("transcode", lane="media")
    async def transcode(ctx: Ctx, path: str) -> str:
        await ctx.progress(40, HOSTILE)
        for number in range(3):
            await ctx.emit("segment", {"number": number, "token": "s3cret", "text": HOSTILE})
        await asyncio.sleep(600)
        return path

    @app.task("ship_release", lane="orders")
    async def ship_release(ctx: Ctx, version: str) -> str:
        door = await ctx.waitpoint("approval", expires=timedelta(hours=4), answer=Rollout)
        await ctx.wait(
            door.count(2, distinct="sources", name="approved"), timeout=timedelta(hours=4)
        )
        return version

    @app.task("build")
    async def build(ctx: Ctx, commit: str) -> str:
        return commit

    return app


async def make_busy(engine: Engine, dsn: str) -> tuple[Busy, Any]:
    """Fill the database; the worker that is given back runs until its caller stops it."""
    app = shop()
    await engine.seed_waitpoint_hmac_secret("k0", "5e" * 32)
    tasks: dict[str, Any] = dict(app.tasks)
    worker = app.worker(dsn=dsn, concurrency=8, drain=0.1)
    await worker.__aenter__()
    async with await Client.connect(dsn) as client:
        tags = {"shop.tenant": "acme", "shop.note": HOSTILE[:60]}
        order = {"order_id": "o-1", "card_number": "4111111111111111", "note": HOSTILE}
        good = await client.submit(
            tasks["charge_card"].call({**order, "total": 10}), tags=tags, idempotency_key="order-1"
        )
        bad = await client.submit(tasks["charge_card"].call({**order, "total": 1000}))
        waits = await client.submit(tasks["fulfil_order"].call("o-2"), tags=tags)
        runs = await client.submit(tasks["transcode"].call("film.mov"))
        asks = await client.submit(
            tasks["ship_release"].call("2.0"), tags={"ff.question": f"Ship 2.0? {HOSTILE[:60]}"}
        )
        flow = app.flow("release")
        first = flow.add(tasks["build"].call("abc"), name="build")
        flow.add(tasks["build"].call("abc"), name="deploy").after(first)
        started = await client.start(flow)
        later = await client.submit(tasks["build"].call("later"), delay=3600)
        members = await started.members()
    [nobody, foreign] = await engine.create_execution(
        [
            given.new(
                execution_kind=HOSTILE,
                lane_id="idle lane",
                input_payload=b'{"note": "<b>"}',
                payload_encoding="json",
                creator_identity=HOSTILE,
            ),
            given.new(execution_kind="hidden_kind", namespace="secret"),
        ]
    )
    assert isinstance(nobody, Created)
    assert isinstance(foreign, Created)
    for wanted, state in (
        (good, PublicState.COMPLETED),
        (bad, PublicState.FAILED),
        (waits, PublicState.SUSPENDED),
        (runs, PublicState.ACTIVE),
        (asks, PublicState.SUSPENDED),
    ):

        async def reached(wanted: Any = wanted, state: PublicState = state) -> bool:
            return await engine.read_execution_state(wanted.execution_id) is state

        await eventually(reached, within=60)  # many browsers may share the machine
    [entry] = (await engine.list_workers("default")).workers
    budget = new_uuid()
    await engine.create_budget(
        budget,
        dimensions=["tokens"],
        hard_limits=[1000],
        soft_limits=[800],
        scope_type="tenant",
        scope_id=HOSTILE[:60],
    )
    await engine.record_spend(budget, good.execution_id, {"tokens": 850})
    quota = await engine.create_quota_policy(
        "per tenant", QuotaLimits(max_concurrent=2, max_requests_per_window=10, window_seconds=60)
    )
    [waitpoint] = (await engine.list_pending_waitpoints(asks.execution_id)).waitpoints
    await engine.create_schedule(
        ScheduleDefinition(
            name="nightly",
            spec=spec_of(cron="0 2 * * *", tz="Europe/Berlin"),
            execution_kind=HOSTILE,
            input_payload=b'{"password": "hunter2"}',
            payload_encoding="json",
        ),
        actor=HOSTILE,
    )
    await engine.trigger_schedule("nightly", reason=HOSTILE, actor="ann")
    bulk = await engine.start_bulk_action(  # refused: both have ended
        "block",
        executions=[good.execution_id, bad.execution_id],
        reason=HOSTILE,
        actor=HOSTILE,
        namespace="default",
    )
    busy = Busy(
        approval=asks.execution_id,
        waitpoint=waitpoint.waitpoint_id,
        budget=budget,
        quota=quota.quota_policy_id,
        bulk=bulk.bulk_id,
        completed=good.execution_id,
        failed=bad.execution_id,
        suspended=waits.execution_id,
        active=runs.execution_id,
        waiting=nobody.execution_id,
        delayed=later.execution_id,
        foreign=foreign.execution_id,
        member=members[0].execution_id,
        worker=entry.worker_instance_id,
        flow=started.flow_id,
    )
    return busy, worker
