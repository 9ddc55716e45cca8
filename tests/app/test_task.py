"""Tasks: what a call becomes on its way to the handler, and what comes back."""

import dataclasses
from collections.abc import Callable
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from flowfabric import App, Client, Ctx, ExecutionFailed, MsgpackCodec, Retry, Task, ValidationError
from tests.all_cases import all_cases


@dataclasses.dataclass
class Order:
    order_id: str
    total: int


class Basket(msgspec.Struct):
    items: list[Order]
    note: str | None = None


class Parcel(pydantic.BaseModel):
    weight: float
    sent_on: date


class Address(TypedDict):
    street: str
    number: int


class Colour(StrEnum):
    RED = "red"


ORDER = Order("o-1", 3)
MOMENT = datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
SHAPES = [
    pytest.param(Order, ORDER, id="dataclass"),
    pytest.param(Basket, Basket([ORDER], "soon"), id="msgspec struct"),
    pytest.param(Parcel, Parcel(weight=0.5, sent_on=date(2024, 2, 29)), id="pydantic model"),
    pytest.param(Address, {"street": "Elm", "number": 7}, id="typed dict"),
    pytest.param(bytes, b"\x00\xff raw", id="bytes"),
    pytest.param(str, "Zürich \N{SNOWMAN}", id="text"),
    pytest.param(Order | None, ORDER, id="optional dataclass"),
    pytest.param(list[Parcel], [Parcel(weight=1, sent_on=MOMENT.date())], id="list of models"),
    pytest.param(dict[str, Order], {"a": ORDER}, id="mapping"),
    pytest.param(datetime, MOMENT, id="instant"),
    pytest.param(UUID, UUID(int=7), id="uuid"),
    pytest.param(Colour, Colour.RED, id="enum"),
    pytest.param(tuple[int, str], (1, "a"), id="tuple"),
]


async def finished(client: Client, ff_dsn: str, app: App, call: Any) -> Any:
    """What the call returns when a worker of `app` has run it."""
    handle = await client.submit(call)
    await app.worker(dsn=ff_dsn).run_until_idle()
    return await handle.result(timeout=10)


def echo(app: App, shape: Any, seen: list[Any]) -> Task[..., Any]:
    """A task that takes one `shape`, notes it and returns it."""

    async def echoing(ctx: Ctx, given: Any) -> Any:
        seen.append(given)
        return given

    echoing.__annotations__ |= {"given": shape, "return": shape}
    return app.task("echo")(echoing)


@pytest.mark.parametrize("codec", [None, MsgpackCodec()], ids=["json", "msgpack"])
@pytest.mark.parametrize(("shape", "value"), SHAPES)
async def test_what_a_caller_gives_is_what_the_handler_gets_and_what_comes_back(
    client: Client, ff_dsn: str, shape: Any, value: Any, codec: Any
) -> None:
    app, seen = App(**({} if codec is None else {"codec": codec})), []
    task = echo(app, shape, seen)

    result = await finished(client, ff_dsn, app, task.call(value))

    assert seen == [value]
    assert type(seen[0]) is type(value)
    assert result == value
    assert type(result) is type(value)


def test_one_model_is_the_whole_payload_and_named_arguments_are_an_object_of_their_names() -> None:
    app = App()

    @app.task("one")
    async def one(ctx: Ctx, order: Order) -> None: ...

    @app.task("named")
    async def named(ctx: Ctx, order: Order, copies: int = 1) -> None: ...

    assert one.call(ORDER).payload == b'{"order_id":"o-1","total":3}'
    assert named.call(ORDER).payload == b'{"order":{"order_id":"o-1","total":3}}'
    assert named.call(ORDER, copies=2).payload.endswith(b'"copies":2}')


def test_bytes_are_stored_as_they_are_and_marked_so() -> None:
    app = App()

    @app.task("raw")
    async def raw(ctx: Ctx, data: bytes) -> bytes:
        return data

    assert raw.call(b"\x00\xff").payload == b"\x00\xff"
    assert raw.encoding == "bytes"


async def test_arguments_left_out_take_the_defaults_of_the_function(
    client: Client, ff_dsn: str
) -> None:
    app = App()

    @app.task("greet")
    async def greet(ctx: Ctx, name: str, greeting: str = "hello", *, times: int = 2) -> str:
        return ", ".join([f"{greeting} {name}"] * times)

    assert await finished(client, ff_dsn, app, greet.call("ann")) == "hello ann, hello ann"
    assert await finished(client, ff_dsn, app, greet.call("bob", times=1)) == "hello bob"


@pytest.mark.parametrize("shape", [Order, bytes], ids=["model", "bytes"])
async def test_a_single_argument_may_have_a_default_too(
    client: Client, ff_dsn: str, shape: Any
) -> None:
    app, seen = App(), []
    fallback = ORDER if shape is Order else b"nothing"

    async def one(ctx: Ctx, given: Any = fallback) -> None:
        seen.append(given)

    one.__annotations__["given"] = shape
    await finished(client, ff_dsn, app, app.task("one")(one).call())

    assert seen == [fallback]


async def test_a_task_without_arguments_gets_none_and_may_return_nothing(
    client: Client, ff_dsn: str
) -> None:
    app, seen = App(), []

    @app.task("tick")
    async def tick(ctx: Ctx) -> None:
        seen.append(ctx.payload)

    assert await finished(client, ff_dsn, app, tick.call()) is None
    assert seen == [b"{}"]


MISFITS: list[tuple[str, Callable[[Task[..., Any]], Any]]] = [
    ("argument 'total' is missing", lambda task: task.call("o-1")),
    ("takes 2 arguments, 3 were given", lambda task: task.call("o-1", 1, 2)),
    ("argument 'order_id' was given twice", lambda task: task.call("o-1", 1, order_id="o-2")),
    ("has no argument 'colour'", lambda task: task.call("o-1", 1, colour="red")),
    (
        r"cannot encode its arguments: \$.total is of type object",
        lambda task: task.call("", object()),
    ),
    ("cannot take argument total: expected int, got str", lambda task: task.call("o-1", "7")),
    ("cannot take argument total: expected int, got bool", lambda task: task.call("o-1", True)),
    ("cannot take argument total: expected int, got None", lambda task: task.call("o-1", None)),
    ("cannot take argument order_id: expected str, got bytes", lambda task: task.call(b"o-1", 1)),
    ("cannot encode its arguments", lambda task: task.call("\ud800", 1)),
]


@all_cases(("why", "misfit"), MISFITS, ids=[why for why, _ in MISFITS])
def test_arguments_that_do_not_fit_are_refused_when_the_call_is_made(
    why: str, misfit: Callable[[Task[..., Any]], Any]
) -> None:
    @App().task("charge")
    async def charge(ctx: Ctx, order_id: str, total: int) -> None: ...

    with pytest.raises(ValidationError, match=why) as refused:
        misfit(charge)

    assert "'charge'" in str(refused.value)


def test_a_mistake_deep_in_an_argument_is_found_when_the_call_is_made() -> None:
    @App().task("charge")
    async def charge(ctx: Ctx, order: Order) -> None: ...

    @App().task("charge all")
    async def charge_all(ctx: Ctx, orders: list[Order], note: str = "") -> None: ...

    with pytest.raises(ValidationError, match=r"cannot take argument order.total: expected int"):
        charge.call(Order("o-1", "7"))  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match=r"argument orders\[1\].total: expected int, got str"):
        charge_all.call([Order("o-1", 7), Order("o-2", "7")])  # type: ignore[arg-type]


def test_a_payload_of_bytes_takes_nothing_else() -> None:
    @App().task("raw")
    async def raw(ctx: Ctx, data: bytes) -> None: ...

    with pytest.raises(ValidationError, match="must be bytes"):
        raw.call("text")  # type: ignore[arg-type]


def test_something_else_than_the_one_model_is_refused_when_the_call_is_made() -> None:
    @App().task("charge")
    async def charge(ctx: Ctx, order: Order) -> None: ...

    with pytest.raises(ValidationError):
        charge.call("o-1")  # type: ignore[arg-type]


async def test_a_result_may_be_bytes_or_nothing(client: Client, ff_dsn: str) -> None:
    app = App()

    @app.task("maybe")
    async def maybe(ctx: Ctx, some: bool) -> bytes | None:
        return b"\x00\xff" if some else None

    assert await finished(client, ff_dsn, app, maybe.call(True)) == b"\x00\xff"
    assert await finished(client, ff_dsn, app, maybe.call(False)) is None


@pytest.mark.parametrize("value", [object(), None, "seven"], ids=["odd", "nothing", "text"])
@pytest.mark.parametrize("in_a_thread", [False, True])
async def test_a_result_that_is_not_what_the_task_declares_fails_for_good(
    client: Client, ff_dsn: str, value: Any, in_a_thread: bool
) -> None:
    app = App()

    async def odd(ctx: Ctx) -> int:
        return value

    def odd_in_a_thread(ctx: Ctx) -> int:
        return value

    task = app.task("odd", retry=Retry(max_retries=3, initial=0))(
        odd_in_a_thread if in_a_thread else odd
    )
    with pytest.raises(ExecutionFailed, match="result of 'odd'") as failed:
        await finished(client, ff_dsn, app, task.call())

    assert failed.value.category == "result_encode"
    assert len(await client.handle(failed.value.execution_id).attempts()) == 1


def test_many_makes_one_call_for_each_item() -> None:
    @App().task("square")
    async def square(ctx: Ctx, number: int) -> int:
        return number * number

    assert [call.payload for call in square.many([1, 2])] == [b'{"number":1}', b'{"number":2}']


def test_equal_sets_are_equal_payloads() -> None:
    @App().task("tally")
    async def tally(ctx: Ctx, numbers: set[int]) -> None: ...

    assert {8, 0}.__repr__() != {0, 8}.__repr__()  # as the orders of texts in two processes
    assert tally.call({8, 0}).payload == tally.call({0, 8}).payload == b'{"numbers":[0,8]}'


async def test_a_task_can_still_be_called_as_the_function_it_is() -> None:
    @App().task("double")
    async def double(ctx: Ctx, number: int) -> int:
        """Twice as much."""
        return 2 * number

    assert await double(None, 4) == 8
    assert (double.__name__, double.__doc__) == ("double", "Twice as much.")


def test_a_call_tells_its_size_and_not_its_content() -> None:
    @App().task("secret")
    async def secret(ctx: Ctx, password: str) -> None: ...

    assert repr(secret.call("hunter2")) == "<call of 'secret', 22 bytes>"
