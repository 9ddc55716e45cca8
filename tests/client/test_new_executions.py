"""Calls of one task with the same options become executions that share all but id and payload."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from flowfabric import App, Ctx, ValidationError
from flowfabric.app.task import Call
from flowfabric.client.new_executions import new_executions
from flowfabric.client.options import Options
from flowfabric.engine.lifecycle.alike_batch import AlikeBatch, ids_of
from flowfabric.engine.lifecycle.create_execution import NewExecution

app = App()
few = app.limit("few", concurrency=2)
NAMES: Any = {"namespace": "shop", "creator": "ann@desk", "partitions": 64}


@app.task("double", lane="maths", priority=3)
async def double(ctx: Ctx, number: int) -> int:
    return 2 * number


@app.task("halve")
async def halve(ctx: Ctx, number: int) -> float:
    return number / 2


@app.task("mail", limit=few, limit_key=lambda number: str(number % 2))
async def mail(ctx: Ctx, number: int) -> None: ...


def made(calls: Sequence[Call[Any]], options: Sequence[Options]) -> Sequence[NewExecution]:
    return new_executions(calls, options, **NAMES)


def without_id(new: NewExecution) -> dict[str, Any]:
    return msgspec.structs.asdict(new) | {"execution_id": None}


@pytest.mark.parametrize("task", [double, mail], ids=lambda task: task.kind)
def test_calls_of_one_task_are_alike_and_as_if_each_came_alone(task: Any) -> None:
    calls, options = [task.call(each) for each in (1, 3, 5)], [Options(priority=7)] * 3

    executions = made(calls, options)

    assert type(executions) is AlikeBatch
    alone = [made([call], options[:1])[0] for call in calls]
    assert list(map(without_id, executions)) == list(map(without_id, alone))
    assert len(set(ids_of(executions))) == 3
    assert len({each.partition_key for each in ids_of(executions)}) == 1


@pytest.mark.parametrize(
    ("calls", "options"),
    [
        ([double.call(1), halve.call(1)], [Options()] * 2),
        ([double.call(1), double.call(1)], [Options(priority=1), Options(priority=2)]),
        ([double.call(1), double.call(1)], [Options(idempotency_key="same")] * 2),
        ([mail.call(1), mail.call(2)], [Options()] * 2),
    ],
    ids=["tasks", "options", "keys", "limit keys"],
)
def test_others_are_made_one_by_one(calls: Sequence[Call[Any]], options: Sequence[Options]) -> None:
    shared = options[0] if options[0] == options[1] else None
    executions = made(calls, [shared or each for each in options])

    assert type(executions) is list
    alone = [made([call], [each])[0] for call, each in zip(calls, options, strict=True)]
    assert list(map(without_id, executions)) == list(map(without_id, alone))


def test_what_is_no_call_is_refused_among_others() -> None:
    with pytest.raises(ValidationError, match=r"write double\.call"):
        made([double.call(1), double], [Options()] * 2)  # type: ignore[list-item]
