"""The application that `ff dev` runs: tasks that succeed, fail, retry and wait, and a flow.

One order has a durable handler: it runs steps, waits for a signal, and sleeps. A refund asks a
person, and a report is streamed while it is written, at the cost of a budget.
"""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta
from typing import Annotated

import msgspec

from flowfabric.app.app import App
from flowfabric.app.flow import Flow
from flowfabric.app.task import Call
from flowfabric.errors import Fail
from flowfabric.joins import Quorum
from flowfabric.policy import Retry
from flowfabric.worker.context import Ctx

app = App()
REPORTS = "reports"
"""The budget that reports are written on."""


class Order(msgspec.Struct, frozen=True):
    order_id: Annotated[str, msgspec.Meta(examples=["o-7"])]
    total: Annotated[int, msgspec.Meta(examples=[99])]


class Receipt(msgspec.Struct, frozen=True):
    order_id: str
    charged: int
    attempts: int


@app.task("charge_order", retry=Retry(max_retries=3, initial=0.5), timeout=30)
async def charge_order(ctx: Ctx, order: Order) -> Receipt:
    """Charges a card; the first attempt of every third order fails, so it is retried."""
    if order.total > 1000:
        raise Fail(f"{order.total} is over the limit of 1000", category="declined", retryable=False)
    if int(order.order_id.rpartition("-")[2]) % 3 == 0 and ctx.attempt_index == 0:
        raise ConnectionError("the bank does not answer")
    await ctx.progress(50, "talking to the bank")
    await asyncio.sleep(0.2)
    return Receipt(order_id=order.order_id, charged=order.total, attempts=ctx.attempt_index + 1)


@app.task("thumbnail")
def thumbnail(ctx: Ctx, path: str, size: int = 128) -> str:
    """Plain functions run in a thread."""
    ctx.sync.progress(10, f"reading {path}")
    digest = hashlib.sha256(f"{path}:{size}".encode() * 10_000).hexdigest()
    return f"/thumbs/{digest[:12]}-{size}.png"


@app.task("remind")
async def remind(ctx: Ctx, name: str) -> str:
    """Submitted with a delay."""
    return f"{name} was reminded"


@app.schedule("weekly-reminder", cron="0 9 * * MON", tz="Europe/Berlin", catch_up=0)
def weekly_reminder() -> Call[str]:
    """Every Monday morning. `ff schedules show weekly-reminder` says when the next one is."""
    return remind.call("everybody")


class Approval(msgspec.Struct, frozen=True):
    by: str


async def reserve(order: Order) -> str:
    """Takes the goods from the shelf."""
    await asyncio.sleep(0.2)
    return f"shelf-{order.order_id}"


async def ship(shelf: str) -> str:
    """Hands the parcel to the carrier."""
    await asyncio.sleep(0.2)
    return f"parcel from {shelf}"


@app.task("fulfil_order")
async def fulfil_order(ctx: Ctx, order: Order) -> str:
    """Waits for a signal and sleeps; meanwhile it holds no worker, and no step runs twice."""
    shelf = await ctx.step("reserve", reserve, order)
    approval: Approval = await ctx.wait_for_signal(
        "approved", type=Approval, timeout=timedelta(days=7)
    )
    await ctx.sleep("packing", timedelta(seconds=3))
    parcel = await ctx.step("ship", ship, shelf)
    return f"{parcel}, approved by {approval.by}"


class RefundAnswer(msgspec.Struct, frozen=True):
    """What the person is asked for, as a form."""

    amount: Annotated[int, msgspec.Meta(description="How much is paid back.")]


@app.task("refund_order")
async def refund_order(ctx: Ctx, order: Order) -> str:
    """Asks a person, who answers under Approvals in the dashboard or by a signed link."""
    question = await ctx.waitpoint("refund", expires=timedelta(days=7), answer=RefundAnswer)
    first = await ctx.select(
        approved=question.named("approved"),
        rejected=question.named("rejected"),
        late=ctx.timer(timedelta(days=7)),
    )
    if first.name != "approved":
        return f"order {order.order_id} is not paid back: {first.name}"
    [signal] = first.value
    answer = msgspec.json.decode(signal.payload or b"{}", type=dict[str, object])
    amount = answer.get("amount", order.total)
    return f"{amount} of order {order.order_id} paid back, says {signal.source_identity}"


@app.task("write_report")
async def write_report(ctx: Ctx, subject: str) -> str:
    """Streams its words while it writes: `ff executions stream ID` or the page of the execution."""
    report = f"{subject.capitalize()} went well. Six orders were charged, one was declined."
    for word in report.split():
        await ctx.emit("token", word)
        await asyncio.sleep(0.1)
    await ctx.spend(REPORTS, tokens=len(report.split()))
    return report


@app.task("build_image")
async def build_image(ctx: Ctx, commit: str) -> str:
    await asyncio.sleep(0.3)
    return f"shop:{commit}"


@app.task("run_tests")
async def run_tests(ctx: Ctx, suite: str, seconds: float) -> str:
    """Runs one test suite; the slowest is cancelled when the two others have passed."""
    await asyncio.sleep(seconds)
    return f"{suite} passed"


@app.task("deploy")
async def deploy(ctx: Ctx, commit: str) -> str:
    await asyncio.sleep(0.2)
    return f"{commit} is live"


def release(commit: str) -> Flow:
    """Build, test in parallel, deploy when two of three suites have passed."""
    flow = app.flow("release")
    build = flow.add(build_image.call(commit), name="build")
    suites = [
        flow.add(run_tests.call(suite, seconds), name=f"test-{suite}").after(build)
        for suite, seconds in (("unit", 0.3), ("api", 0.5), ("browser", 20.0))
    ]
    flow.add(deploy.call(commit), name="deploy").after(*suites, policy=Quorum(2))
    return flow
