"""One trace from the submit of an execution to its attempts, steps and children."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from flowfabric import App, Client, Ctx, Flow, Retry
from flowfabric.db.rows import Connection
from flowfabric.tracing import TRACEPARENT, is_traceparent, log_fields, tracer, with_traceparent

pytestmark = pytest.mark.timeout(60)

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
async def spans(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[InMemorySpanExporter]:
    """What ends while the test runs; a provider can be set only once, so it is asked for here."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


@pytest.fixture(autouse=True)
def _both_ways(way: str) -> None:
    """Clients and workers are connected as the test says."""


def named(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in spans.get_finished_spans()}


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


async def test_submit_claim_steps_and_children_are_one_trace(
    ff_dsn: str, spans: InMemorySpanExporter
) -> None:
    app = App()

    @app.task("pack")
    async def pack(ctx: Ctx) -> None:
        await ctx.step("weigh", lambda: 7)

    @app.task("ship")
    async def ship(ctx: Ctx) -> None:
        async def reserve() -> None:
            assert log_fields()["trace_id"]

        await ctx.step("reserve", reserve)
        await ctx.gather([pack.call()])

    async with await Client.connect(ff_dsn) as client:
        handle = await client.submit(ship.call())
        await app.worker(dsn=ff_dsn).run_until_idle()
        await handle.result()

    found = named(spans)
    assert set(found) == {
        "submit ship", "claim ship", "run ship", "step reserve",
        "claim pack", "run pack", "step weigh",
    }  # fmt: skip
    assert len({span.context and span.context.trace_id for span in found.values()}) == 1
    runs = [each for each in spans.get_finished_spans() if each.name == "run ship"]
    assert {parent_of(each) for each in runs} == {id_of(found["submit ship"])}
    first = runs[0]
    assert parent_of(found["step reserve"]) == parent_of(found["run pack"]) == id_of(first)
    assert parent_of(found["step weigh"]) == id_of(found["run pack"])
    assert (first.attributes or {})["flowfabric.execution_id"] == str(handle.execution_id)


async def test_the_members_of_a_flow_belong_to_the_span_of_its_start(
    ff_dsn: str, spans: InMemorySpanExporter
) -> None:
    app = App()

    @app.task("one")
    async def one(ctx: Ctx) -> None: ...

    flow = Flow("pair")
    first = flow.add(one.call(), name="a")
    flow.add(one.call(), name="b").after(first)
    async with await Client.connect(ff_dsn) as client:
        await client.start(flow)
        await app.worker(dsn=ff_dsn).run_until_idle()

    start = named(spans)["submit pair"]
    runs = [each for each in spans.get_finished_spans() if each.name == "run one"]
    assert [parent_of(each) for each in runs] == [id_of(start)] * 2


async def test_a_failed_attempt_has_the_status_of_an_error_and_a_retry_is_in_the_same_trace(
    ff_dsn: str, spans: InMemorySpanExporter
) -> None:
    app, tries = App(), list[int]()

    @app.task("flaky", retry=Retry(max_retries=1, initial=0.01))
    def flaky(ctx: Ctx) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("not yet")

    async with await Client.connect(ff_dsn) as client:
        handle = await client.submit(flaky.call(), tags={TRACEPARENT: PARENT})
        async with app.worker(dsn=ff_dsn):
            await handle.result(30)

    first, second = (each for each in spans.get_finished_spans() if each.name == "run flaky")
    assert (first.status.status_code.name, first.status.description) == (
        "ERROR",
        "ValueError: not yet",
    )
    assert second.status.status_code.name == "UNSET"
    assert parent_of(first) == parent_of(second) == 0xB7AD6B7169203331
    assert [(each.attributes or {})["flowfabric.attempt"] for each in (first, second)] == [1, 2]


async def test_an_execution_with_an_unreadable_context_begins_a_trace(
    ff_dsn: str, db: Connection, spans: InMemorySpanExporter
) -> None:
    app = App()

    @app.task("odd")
    async def odd(ctx: Ctx) -> None: ...

    async with await Client.connect(ff_dsn) as client:
        handle = await client.submit(odd.call(), tags={TRACEPARENT: "00-zz", "shop.tenant": "acme"})
        await app.worker(dsn=ff_dsn).run_until_idle()
        await handle.result()

    assert parent_of(named(spans)["run odd"]) is None
    assert await db.fetchval("SELECT array_agg(tag_key) FROM ff.exec_tag") == ["shop.tenant"], (
        "a context is kept with the execution and not listed for the search by tag"
    )


def test_a_context_is_kept_unless_one_is_given_or_no_tag_has_room(
    spans: InMemorySpanExporter,
) -> None:
    full = {f"a.b{number}": "" for number in range(64)}
    found = tracer()
    assert found is not None
    with found.start_as_current_span("outer") as span:
        made = with_traceparent({"a.b": "c"})

        assert is_traceparent(made[TRACEPARENT])
        assert f"{span.get_span_context().span_id:016x}" in made[TRACEPARENT]
        assert with_traceparent({TRACEPARENT: PARENT}) == {TRACEPARENT: PARENT}
        assert with_traceparent(full) is full
    assert with_traceparent({}) == {}, "without a span there is nothing to keep"


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (PARENT, True),
        ("01" + PARENT[2:] + "-later", True),
        ("", False),
        (PARENT + "-more", False),
        ("ff" + PARENT[2:], False),
        (PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32), False),
        (PARENT.replace("b7ad6b7169203331", "0" * 16), False),
        (PARENT.upper(), False),
    ],
)
def test_a_context_is_read_as_w3c_says(text: str, valid: bool) -> None:
    assert is_traceparent(text) is valid


def test_without_a_provider_nothing_is_traced_and_the_library_is_not_imported() -> None:
    program = (
        "import sys, flowfabric, flowfabric.cli.main\n"
        "from flowfabric.tracing import tracer, with_traceparent\n"
        "assert tracer() is None and 'opentelemetry' not in sys.modules\n"
        "from opentelemetry import trace\n"
        "tags = {'a.b': 'c'}\n"
        "assert tracer() is None and with_traceparent(tags) is tags\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True)
