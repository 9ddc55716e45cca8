"""The call that `ff dev` suggests is one that the task accepts."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec

from flowfabric import App, Ctx, Depends, Retry
from flowfabric.cli import example
from flowfabric.cli.suggested_call import suggested_call
from tests.all_cases import all_cases


class Colour(enum.Enum):
    RED = "red"


class Address(msgspec.Struct):
    street: str
    number: int = 7


class Node(msgspec.Struct):
    name: str
    after: list[Node] = []


@dataclasses.dataclass
class Order:
    order_id: str
    lines: list[Address]
    due: datetime
    gift: bool | None


class Rules(msgspec.Struct, tag="rules"):
    many: Annotated[int, msgspec.Meta(ge=10, multiple_of=4)]
    few: Annotated[float, msgspec.Meta(lt=0)]
    text: Annotated[str, msgspec.Meta(min_length=9)]
    some: Annotated[list[int], msgspec.Meta(min_length=2)]
    pair: tuple[int, str]
    raw: bytes
    quoted: Annotated[str, msgspec.Meta(pattern="'", examples=["it's"])]


class Code(msgspec.Struct):
    code: Annotated[str, msgspec.Meta(pattern="^[0-9]{4}$")]


class Point(TypedDict):
    x: float


class Pair(NamedTuple):
    left: int
    right: str


class Model:
    """What pydantic's models have, as far as the codec uses it."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        inner = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        return {
            "$defs": {"Inner": inner},
            "type": "object",
            "properties": {"inner": {"$ref": "#/$defs/Inner"}},
            "required": ["inner"],
        }

    @classmethod
    def model_validate(cls, value: dict[str, Any]) -> Model:
        assert isinstance(value["inner"]["n"], int)
        return cls()


def database() -> int:
    return 1


async def nothing(ctx: Ctx) -> None: ...
async def plain(ctx: Ctx, name: str, count: int, share: float, loud: bool = True) -> None: ...
async def one_model(ctx: Ctx, order: Order) -> None: ...
async def foreign_model(ctx: Ctx, model: Model) -> None: ...
async def strict(ctx: Ctx, code: Code) -> None: ...
async def a_dict(ctx: Ctx, point: Point, pair: Pair, rest: dict[str, int]) -> None: ...
async def recursive(ctx: Ctx, node: Node) -> None: ...
async def whole_bytes(ctx: Ctx, body: bytes) -> None: ...
async def anything(ctx: Ctx, value: Any, untyped, db: int = Depends(database)) -> None: ...  # type: ignore[no-untyped-def]
async def times(ctx: Ctx, a: date, b: time, c: timedelta, d: UUID, e: Decimal) -> None: ...
async def choices(
    ctx: Ctx, colour: Colour, size: Literal["s", "m"], both: int | str, maybe: Address | None
) -> None: ...
async def bounds(ctx: Ctx, rules: Rules) -> None: ...


@all_cases(
    "function",
    [
        nothing,
        plain,
        one_model,
        foreign_model,
        a_dict,
        recursive,
        whole_bytes,
        anything,
        times,
        choices,
        bounds,
    ],
    ids=lambda function: function.__name__,
)
def test_the_payload_is_one_that_the_task_decodes(function: Callable[..., Any]) -> None:
    app = App()
    task = app.task("t")(function)

    [kind, payload] = suggested_call(app)

    assert kind == "t"
    task.decode(payload.encode(), "json")


def test_values_have_the_names_of_their_arguments() -> None:
    app = App()
    app.task("t")(plain)

    assert suggested_call(app)[1] == '{"name":"name","count":1,"share":1.5}'


def test_the_call_names_what_ff_submit_does_not_know_of_the_task() -> None:
    app = App(namespace="acme")
    app.task(
        "t",
        lane="slow",
        requires=["gpu"],
        priority=7,
        retry=Retry(max_retries=2),
        timeout=1.5,
        deadline=timedelta(minutes=2),
    )(nothing)

    named = ["--lane", "slow", "--namespace", "acme", "--requires", "gpu", "--priority", "7"]
    limits = ["--retries", "2", "--attempt-timeout", "1.5s", "--deadline", "120s"]
    assert suggested_call(app) == ["t", "{}", *named, *limits]


def test_a_task_is_passed_over_if_no_value_could_be_made_up() -> None:
    app = App()
    app.task("strict")(strict)
    app.task("plain")(plain)

    assert suggested_call(app)[0] == "plain"


def test_the_example_says_which_values_it_takes() -> None:
    assert suggested_call(example.app)[:2] == ["charge_order", '{"order_id":"o-7","total":99}']
