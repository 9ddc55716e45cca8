"""What cannot be submitted or asked for is refused before a statement is sent, with words."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from flowfabric import AnyOf, App, Client, Ctx, Flow, ValidationError
from flowfabric.db.rows import Connection
from flowfabric.engine import Claimant, NewExecution
from tests import given
from tests.all_cases import all_cases

app = App()


@app.task("job")
async def job(ctx: Ctx, number: int = 0) -> None: ...


OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"delay": -1}, "delay -1 must not be negative"),
    ({"delay": timedelta(seconds=-1)}, "delay .* must not be negative"),
    ({"delay": "5s"}, "delay '5s' must be a number of seconds or a timedelta"),
    ({"delay_until": 5}, "delay_until 5 must be a datetime"),
    ({"delay_until": datetime(2030, 1, 1)}, "must have a time zone"),
    ({"deadline": 0}, "deadline 0 must be positive"),
    ({"deadline": -1}, "deadline -1 must be positive"),
    ({"deadline_at": "tomorrow"}, "execution_deadline_at 'tomorrow' must be a datetime"),
    ({"tags": {"shop.number": 7}}, "tag shop.number 7 must be a text, not int"),
    ({"tags": {"shop.none": None}}, "tag shop.none must be a text, not NoneType"),
    ({"tags": {"Tenant": "acme"}}, "tag key 'Tenant' must look like area.name in lower case"),
    ({"tags": ["shop.tenant"]}, "must map keys to texts"),
    ({"priority": "high"}, "priority 'high' must be a whole number"),
    ({"lane": ""}, "lane_id '' must not be empty"),
    ({"lane": 3}, "lane_id 3 must be a text, not int"),
    ({"idempotency_key": ""}, "idempotency_key '' must not be empty"),
    ({"idempotency_key": 7}, "idempotency_key 7 must be a text, not int"),
    ({"queue": "mail"}, "option 'queue' is unknown; the options are idempotency_key, "),
]


@pytest.mark.parametrize(("options", "why"), OPTIONS, ids=[str(given) for given, _ in OPTIONS])
async def test_an_option_that_cannot_be_honoured_is_refused(
    client: Client, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValidationError, match=why):
        await client.submit_many([job.call()], **options)


CALLS: list[tuple[str, Callable[[Any], Any], str]] = [
    ("a task", lambda client: client.submit(job), r"must be a call: write job.call\(...\)"),
    ("a function", lambda client: client.submit(job.function), r"write task.call\(...\)"),
    ("one call", lambda client: client.submit_many(job.call()), r"write submit_many\(\["),
    ("a flow", lambda client: client.submit(Flow("f")), "must be a call"),
    ("a number", lambda client: client.describe(7), "execution_id 7 must be of type ExecutionId"),
    ("a text", lambda client: client.describe("x"), "execution_id 'x'"),
    ("a flow id", lambda client: client.flow(7).state(), "flow_id 7 must be of type UUID"),
]


@pytest.mark.parametrize(("what", "call", "why"), CALLS, ids=[what for what, *_ in CALLS])
async def test_what_is_no_call_and_no_id_is_refused(
    client: Client, what: str, call: Callable[[Any], Any], why: str
) -> None:
    with pytest.raises(ValidationError, match=why):
        await call(client)


async def test_many_calls_may_come_from_a_generator(client: Client) -> None:
    assert len(await client.submit_many(job.call(number) for number in range(3))) == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("namespace", ["", 3, "a\x00b"])
async def test_a_namespace_that_cannot_be_is_refused_before_connecting(namespace: Any) -> None:
    with pytest.raises(ValidationError, match="namespace"):
        await Client.connect("postgresql://localhost:1/nowhere", namespace=namespace)


FLOWS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda _: Flow("f", tags={"shop.number": 7}), "tag shop.number 7 must be a text"),  # type: ignore[dict-item]
    (lambda _: Flow("f", tags="x"), "must map keys to texts"),  # type: ignore[arg-type]
    (lambda flow: flow.add(job), r"must be a call: write job.call\(...\)"),
    (lambda flow: flow.add(job.call(), lane=""), "lane '' must not be empty"),
    (lambda flow: flow.add(job.call()).after("a"), "after 'a' must be what flow.add returned"),
    (lambda flow: flow.add(job.call()).after([]), r"write .after\(\*members\)"),
    (lambda flow: flow.add(job.call()).after(policy=AnyOf), r"write AllOf\(\), AnyOf\(\)"),
]


@all_cases(("draw", "why"), FLOWS, ids=[why for _, why in FLOWS])
def test_a_flow_is_checked_while_it_is_drawn(draw: Callable[[Any], Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        draw(Flow("graph"))


async def test_lists_are_as_good_as_tuples_for_the_engine(db: Connection) -> None:
    new = NewExecution(
        execution_id=given.new().execution_id,
        execution_kind="job",
        required_capabilities=["gpu", "eu"],  # type: ignore[arg-type]
    )
    who: dict[str, Any] = {"worker_id": "w", "worker_instance_id": "w-1"}

    assert new.required_capabilities == ("eu", "gpu")
    claimant = Claimant(**who, lanes=["a"], kinds=["job"], capabilities={"gpu"})  # type: ignore[arg-type]
    assert (claimant.lanes, claimant.kinds, claimant.capabilities) == (("a",), ("job",), ("gpu",))
    with pytest.raises(ValidationError, match=r"write lanes=\['default'\]"):
        Claimant(**who, lanes="default")  # type: ignore[arg-type]
