"""Plain submits of one task share what the task says; nothing else is shared."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from flowfabric import App, Ctx, Retry, TransportError, ValidationError
from flowfabric.client.new_executions import new_executions
from flowfabric.client.options import PLAIN, Options
from flowfabric.client.submits import Submit, Submits, executions_of
from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.ids import uuid_partition

NAMES: Any = {"namespace": "shop", "creator": "ann@desk"}
PARTITIONS = 64


@pytest.fixture
def app() -> App:
    made = App()

    @made.task("double", lane="maths", retry=Retry(max_retries=2), priority=3, requires={"alu"})
    async def double(ctx: Ctx, number: int) -> int:
        return 2 * number

    @made.task("halve")
    async def halve(ctx: Ctx, number: int) -> float:
        return number / 2

    return made


def without_id(new: NewExecution) -> dict[str, Any]:
    fields = msgspec.structs.asdict(new)
    del fields["execution_id"]
    return fields


@pytest.fixture
def submits() -> Submits:
    return Submits(cast("Any", SimpleNamespace(partitions=PARTITIONS)))


def made(given: Sequence[Submit]) -> list[NewExecution]:
    return list(executions_of(given, partitions=PARTITIONS))


@pytest.mark.parametrize("kinds", [["double", "halve"], ["double"]])
def test_each_is_as_if_it_were_the_first_of_its_task(
    app: App, submits: Submits, kinds: list[str]
) -> None:
    calls = [app.tasks[kind].call(n) for n, kind in enumerate(kinds * 3)]
    given = [submits.new(call, PLAIN, **NAMES) for call in calls]

    executions = made(given)

    expected = [
        new_executions([call], [Options()], partitions=PARTITIONS, **NAMES)[0] for call in calls
    ]
    assert list(map(without_id, executions)) == list(map(without_id, expected))
    ids = [new.execution_id for new in executions]
    assert len(set(ids)) == len(ids)
    assert {each.partition_key for each in ids} == {uuid_partition(ids[0].uuid, PARTITIONS)}


def test_what_is_sent_again_in_other_company_keeps_its_ids(app: App, submits: Submits) -> None:
    given = [submits.new(app.tasks["double"].call(n), PLAIN, **NAMES) for n in range(4)]
    ids = [new.execution_id for new in made(given)]

    assert [new.execution_id for new in made(given[1:3])] == ids[1:3]
    late = submits.new(app.tasks["halve"].call(1), PLAIN, **NAMES)
    assert [new.execution_id for new in made([*given, late])][:4] == ids


async def test_a_batch_whose_answer_was_lost_is_sent_again_with_the_same_ids(app: App) -> None:
    sent: list[tuple[bool, list[NewExecution]]] = []

    async def create_execution(new: Sequence[NewExecution], *, fresh: bool = False) -> list[int]:
        sent.append((fresh, list(new)))
        if len(sent) == 1:
            raise TransportError("the answer is lost")
        if len(new) > 2:
            raise ValidationError("invalid_input", "one is wrong")
        return list(range(len(new)))

    engine = SimpleNamespace(partitions=PARTITIONS, create_execution=create_execution)
    submits = Submits(cast("Any", engine))
    calls = [app.tasks["double"].call(n) for n in range(4)]
    await asyncio.gather(*[submits.request(submits.new(call, PLAIN, **NAMES)) for call in calls])

    (fresh, first), (again, second), *halves = sent
    assert (fresh, again, first) == (True, False, second)
    assert [new for _, half in halves for new in half] == first


def test_options_hold_for_one_submit(app: App, submits: Submits) -> None:
    call = app.tasks["double"].call(1)
    first = submits.new(call, PLAIN, **NAMES)

    other = submits.new(call, Options(priority=9, tags={"a.b": "c"}), **NAMES)
    last = submits.new(call, PLAIN, **NAMES)

    first, urgent, after = made([first, other, last])

    assert (urgent.priority, urgent.tags) == (9, {"a.b": "c"})
    assert without_id(after) == without_id(first)


def test_a_payload_is_checked_each_time(
    app: App, submits: Submits, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = app.tasks["double"].call(1)
    submits.new(call, PLAIN, **NAMES)
    monkeypatch.setattr("flowfabric.engine.lifecycle.create_execution.MAX_PAYLOAD", 0)

    with pytest.raises(ValidationError, match="payload_too_large"):
        submits.new(call, PLAIN, **NAMES)


def test_a_call_with_a_limit_is_in_the_partition_of_its_key(submits: Submits) -> None:
    app = App()

    @app.task("mail", limit=app.limit("mail", concurrency=2))
    async def mail(ctx: Ctx) -> None: ...

    given = [submits.new(mail.call(), PLAIN, **NAMES) for _ in range(20)]

    assert len({new.execution_id.partition_key for new in made(given)}) == 1


def test_a_client_that_goes_to_another_namespace_submits_there(app: App, submits: Submits) -> None:
    call = app.tasks["double"].call(1)
    names: Any = {"namespace": "bakery", "creator": "bob@desk"}

    [_, other] = made([submits.new(call, PLAIN, **each) for each in (NAMES, names)])

    assert (other.namespace, other.creator_identity) == ("bakery", "bob@desk")
