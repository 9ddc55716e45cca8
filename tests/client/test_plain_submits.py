"""Plain submits of one task share what the task says; nothing else is shared."""

from typing import Any

import msgspec
import pytest

from flowfabric import App, Ctx, Retry, ValidationError
from flowfabric.client.new_executions import new_executions
from flowfabric.client.options import Options
from flowfabric.client.plain_submits import PlainSubmits
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


def test_each_is_as_if_it_were_the_first_of_its_task(app: App) -> None:
    plain = PlainSubmits(partitions=PARTITIONS)
    calls = [app.tasks[kind].call(n) for n, kind in enumerate(["double", "halve"] * 3)]

    made = [plain.new_execution(call, Options(), **NAMES) for call in calls]

    expected = [
        new_executions([call], [Options()], partitions=PARTITIONS, **NAMES)[0] for call in calls
    ]
    assert list(map(without_id, made)) == list(map(without_id, expected))
    ids = [new.execution_id for new in made]
    assert len(set(ids)) == len(ids)
    assert all(each.partition_key == uuid_partition(each.uuid, PARTITIONS) for each in ids)


def test_options_hold_for_one_submit(app: App) -> None:
    plain, call = PlainSubmits(partitions=PARTITIONS), app.tasks["double"].call(1)
    first = plain.new_execution(call, Options(), **NAMES)

    urgent = plain.new_execution(call, Options(priority=9, tags={"a.b": "c"}), **NAMES)
    after = plain.new_execution(call, Options(), **NAMES)

    assert (urgent.priority, urgent.tags) == (9, {"a.b": "c"})
    assert without_id(after) == without_id(first)


def test_a_payload_is_checked_each_time(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, call = PlainSubmits(partitions=PARTITIONS), app.tasks["double"].call(1)
    plain.new_execution(call, Options(), **NAMES)
    monkeypatch.setattr("flowfabric.engine.lifecycle.create_execution.MAX_PAYLOAD", 0)

    with pytest.raises(ValidationError, match="payload_too_large"):
        plain.new_execution(call, Options(), **NAMES)


def test_a_call_with_a_limit_is_in_the_partition_of_its_key() -> None:
    app = App()

    @app.task("mail", limit=app.limit("mail", concurrency=2))
    async def mail(ctx: Ctx) -> None: ...

    plain = PlainSubmits(partitions=PARTITIONS)
    homes = {
        plain.new_execution(mail.call(), Options(), **NAMES).execution_id.partition_key
        for _ in range(20)
    }

    assert len(homes) == 1


def test_a_client_that_goes_to_another_namespace_submits_there(app: App) -> None:
    plain, call = PlainSubmits(partitions=PARTITIONS), app.tasks["double"].call(1)
    plain.new_execution(call, Options(), **NAMES)

    other = plain.new_execution(call, Options(), namespace="bakery", creator="bob@desk")

    assert (other.namespace, other.creator_identity) == ("bakery", "bob@desk")
