"""A result that is passed on: which argument takes it, and what is refused when it is drawn."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, NewType, TypedDict

import msgspec
import pytest

from flowfabric import AnyOf, App, Client, Ctx, Fail, Flow, Member, Quorum, ValidationError
from flowfabric.app.check_call import check_call
from flowfabric.app.codec import JSON, MSGPACK, Codec
from flowfabric.app.passable import passable
from tests.all_cases import all_cases

pytestmark = pytest.mark.timeout(30)

Cents = NewType("Cents", int)


class Colour(enum.StrEnum):
    RED = "red"


class Order(msgspec.Struct):
    order_id: str
    total: int


@dataclass
class Invoice:
    order_id: str
    total: float
    paid: bool = False


class Part(TypedDict):
    image: str


@all_cases(
    ("source", "target", "answer"),
    [
        (int, int, True),
        (int, float, True),
        (float, int, False),
        (bool, int, False),
        (str, int, False),
        (int, Any, True),
        (Any, int, True),
        (None, int, False),
        (None, int | None, True),
        (int | None, int, False),
        (int, int | str, True),
        (Cents, int, True),
        (Annotated[int, "cents"], int, True),
        (Literal["a", "b"], str, True),
        (Literal["a"], Literal["b"], False),
        (str, Literal["a"], True),
        (Colour, str, True),
        (Colour, int, False),
        (str, datetime, False),
        (list[int], list[int], True),
        (list[int], tuple[int, ...], True),
        (tuple[int, str], list[int], False),
        (list[int], Sequence[str], False),
        (list[int], int, False),
        (dict[str, int], dict[str, float], True),
        (dict[str, str], dict[str, int], False),
        (dict[str, str], list[str], False),
        (Order, Order, True),
        (Order, Invoice, True),
        (Invoice, Order, False),  # its total is a float
        (Part, Order, False),
        (Order, dict[str, Any], True),
        (dict[str, Any], Order, True),
        (Order, str, False),
        (list[Order], list[Invoice], True),
        (list[Part], list[Order], False),
    ],
    ids=str,
)
def test_whether_a_value_can_be_passed_follows_from_the_two_types(
    source: Any, target: Any, answer: bool
) -> None:
    assert passable(source, target) is answer


def member(app: App, returns: Any, *, codec: Codec = JSON, kind: str = "up") -> Member[Any]:
    """A member whose task returns a value of this type."""

    async def function(ctx: Ctx) -> None: ...

    function.__annotations__ |= {"return": returns}
    task = app.task(kind, codec=codec)(function)
    return app.flow("drawn").add(task.call())


def below(upstream: Member[Any], codec: Codec = JSON, /, **arguments: Any) -> Member[Any]:
    """A member of the same flow, whose task takes these arguments."""
    app = App()
    names = ", ".join(
        name if not isinstance(given, tuple) else f"{name}=None"
        for name, given in arguments.items()
    )
    scope: dict[str, Any] = {}
    exec(f"async def function(ctx, {names}): ...", scope)  # noqa: S102
    function: Callable[..., Any] = scope["function"]
    function.__annotations__ |= {
        name: given[0] if isinstance(given, tuple) else given for name, given in arguments.items()
    }
    task = app.task("down", codec=codec)(function)
    call = type(upstream.call)(task, b"{}")
    return upstream._flow.add(call)  # pyright: ignore[reportPrivateUsage]


@all_cases(
    ("returns", "arguments", "feed", "ref"),
    [
        (int, {"n": int}, True, "argument:n"),
        (int, {"text": str, "n": int}, True, "argument:n"),
        (int, {"a": int, "b": int}, "b", "argument:b"),
        (int, {"a": str, "n": (int,)}, True, "argument:n"),
        (Any, {"n": int}, True, "argument:n"),
        (Any, {"a": int, "b": int}, True, "result"),
        (dict[str, int], {"counts": dict[str, int]}, True, "argument:counts"),
        (dict[str, str], {"image": str}, True, "result"),
        (Part, {"image": str}, True, "result"),
        (Part, {"part": Part, "n": int}, True, "argument:part"),
        (Order, {"order_id": str, "total": int, "note": (str,)}, True, "result"),
        (Order, {"order": Order}, True, "result"),  # one model is the whole payload
        (Order, {"order": Order}, "order", "result"),
        (bytes, {"data": bytes}, True, "result"),
        (list[Order], {"orders": list[Order]}, True, "argument:orders"),
        (int, {"seconds": float}, True, "argument:seconds"),
        (int, {"text": str, "seconds": (float,)}, "seconds", "argument:seconds"),
        (int, {"seconds": float, "n": int}, True, "argument:n"),
        (int, {"value": Any, "n": int | None}, True, "argument:n"),
        (int, {"value": Any}, True, "argument:value"),
        (Colour, {"n": float, "name": str}, True, "argument:name"),
    ],
    ids=str,
)
def test_a_result_becomes_the_argument_that_it_fits_or_the_whole_input(
    returns: Any, arguments: dict[str, Any], feed: bool | str, ref: str
) -> None:
    upstream = member(App(), returns)

    drawn = below(upstream, **arguments).after(upstream, feed=feed)

    assert drawn.upstreams == {"up": ref}


@all_cases(
    ("returns", "arguments", "feed", "said"),
    [
        (str, {"n": int}, True, "task 'up' returns str, and task 'down' takes n: int"),
        (str, {"n": int, "s": str}, "n", "task 'up' returns str, and task 'down' takes n: int"),
        (int | None, {"n": int}, True, r"returns int \| None, and task 'down' takes n: int"),
        (int, {"n": int}, "m", "feed 'm' is no argument of task 'down'; its arguments are n"),
        (int, {}, True, "task 'down' takes no argument"),
        (int, {"a": int, "b": int}, True, "fits 'a' and 'b' of .* with feed='a' or feed='b'"),
        (
            int,
            {"text": str, "seconds": (float,)},
            True,
            r"which is the type of no argument of task 'down' \(text: str, seconds: float\):"
            " name the argument with feed='seconds'",
        ),
        (list[int], {"s": str, "n": list[float]}, True, "name the argument with feed='n'"),
        (int, {"s": str, "value": Any}, True, "name the argument with feed='value'"),
        (list[int], {"a": int, "b": str}, True, r"returns list\[int\], .* takes a: int, b: str"),
        (Part, {"order_id": str}, True, "returns Part, and task 'down' takes order_id: str"),
        (Order, {"part": Part}, True, "returns Order, and task 'down' takes part: Part"),
        (dict[str, str], {"n": int}, True, r"returns dict\[str, str\], .* takes n: int"),
    ],
    ids=str,
)
def test_a_result_that_does_not_fit_is_refused_when_it_is_drawn(
    returns: Any, arguments: dict[str, Any], feed: bool | str, said: str
) -> None:
    upstream = member(App(), returns)
    downstream = below(upstream, **arguments)

    with pytest.raises(ValidationError, match=said):
        downstream.after(upstream, feed=feed)

    assert downstream.upstreams == {}


class Shouting:
    """A codec of the user's own."""

    name = "shouting"

    def encode(self, value: object) -> bytes:
        return repr(value).upper().encode()

    def decoder(self, wanted: Any) -> Callable[[bytes], Any]:
        return bytes.decode


def test_an_argument_can_be_passed_only_where_its_encoding_is_known() -> None:
    upstream = member(App(), int, codec=Shouting())

    with pytest.raises(ValidationError, match="task 'up' has the codec 'shouting'"):
        below(upstream, n=int).after(upstream, feed=True)


def test_two_results_of_an_all_of_do_not_become_the_same_argument() -> None:
    app = App()
    one = member(app, int)
    flow = one._flow  # pyright: ignore[reportPrivateUsage]
    two = flow.add(one.call, name="two")
    whole = flow.add(member(App(), dict[str, int], kind="whole").call, name="whole")
    down = below(one, a=int, b=int).after(one, feed="a")

    with pytest.raises(ValidationError, match="would replace the result of 'up' as 'a' of 'down'"):
        down.after(two, feed="a")
    with pytest.raises(ValidationError, match="feed 'whole' would replace the whole input"):
        down.after(whole, feed=True)

    assert down.after(two, feed="b").upstreams == {"up": "argument:a", "two": "argument:b"}
    either = below(one, n=int).after(one, two, policy=AnyOf(), feed=True)
    assert set(either.upstreams.values()) == {"argument:n"}


def test_an_argument_that_is_left_out_must_be_fed_whichever_upstream_decides() -> None:
    flow = app.flow("partial")
    one, two = flow.add(number.call(1), name="one"), flow.add(number.call(2), name="two")
    down = flow.add(show.partial(b=1.5), name="down")

    with pytest.raises(ValidationError, match="feed 'a' is missing: no upstream of 'down' feeds"):
        build(flow)
    down.after(one, policy=AnyOf(), feed="a").after(two, policy=AnyOf())
    with pytest.raises(ValidationError, match="not every upstream of 'down' feeds it"):
        build(flow)
    with pytest.raises(ValidationError, match="cannot take argument b: "):
        show.partial(b="much")
    with pytest.raises(ValidationError, match="has no argument 'c'"):
        show.partial(c=1)
    with pytest.raises(ValidationError, match="must be a call"):
        check_call(show.partial())


def build(flow: Flow) -> None:
    flow.build(namespace="default", creator="test", partitions=256)


# Running.

app = App()


@app.task("number")
async def number(ctx: Ctx, n: int) -> int:
    return n + 1


@app.task("packed", codec=MSGPACK)
async def packed(ctx: Ctx, n: int) -> int:
    return n + 1


@app.task("maybe")
async def maybe(ctx: Ctx) -> int | None:
    return None


@app.task("raw")
async def raw(ctx: Ctx) -> bytes:
    return b"\xff123"


@app.task("orders")
async def orders(ctx: Ctx) -> list[Order]:
    return [Order("a", 1), Order("b", 2)]


@app.task("refuse")
async def refuse(ctx: Ctx) -> int:
    raise Fail("no", retryable=False)


@app.task("show")
async def show(ctx: Ctx, a: int | None, b: float = 0.5, data: bytes = b"") -> str:
    return f"{a} {b} {data!r}"


@app.task("shown", codec=MSGPACK)
async def shown(ctx: Ctx, a: int, data: bytes = b"") -> str:
    return f"{a} {data!r}"


@app.task("sum")
async def total(ctx: Ctx, orders: list[Order], start: int = 0) -> int:
    return start + sum(order.total for order in orders)


async def test_plain_values_are_passed_as_arguments_whatever_their_encoding(
    client: Client, ff_dsn: str
) -> None:
    flow = app.flow("fed")
    one = flow.add(number.call(1), name="one")
    two = flow.add(packed.call(0), name="two").after(one, feed=True)
    flow.add(number.partial(), name="three").after(two, feed=True)
    none, data = flow.add(maybe.call(), name="none"), flow.add(raw.call(), name="data")
    flow.add(show.partial(), name="all").after(none, feed="a").after(two, feed="b").after(
        data, feed="data"
    )
    flow.add(shown.partial(), name="packed").after(one, feed="a").after(data, feed="data")
    listed = flow.add(orders.call(), name="orders")
    flow.add(total.partial(start=10), name="sum").after(listed, feed=True)
    lost = flow.add(refuse.call(), name="lost")
    flow.add(show.call(0, 2.5), name="any").after(lost, one, policy=AnyOf("let_run"), feed="a")

    handle = await client.start(flow)
    await app.worker(dsn=ff_dsn).run_until_idle()

    results = await handle.result(10)
    assert {name: results[name] for name in ("three", "all", "packed", "sum", "any")} == {
        "three": 4,
        "all": "None 3.0 b'\\xff123'",
        "packed": "2 b'\\xff123'",
        "sum": 13,
        "any": "2 2.5 b''",
    }


async def test_a_skipped_member_is_given_its_arguments_when_it_waits_again(
    client: Client, ff_dsn: str
) -> None:
    broken = {"it is": True}
    own = App()

    @own.task("breaks")
    async def breaks(ctx: Ctx) -> int:
        if broken["it is"]:
            raise Fail("no", retryable=False)
        return 5

    own.tasks |= app.tasks
    flow = own.flow("again")
    first = flow.add(breaks.call(), name="first")
    other = flow.add(number.call(1), name="other")
    flow.add(show.call(0), name="last").after(first, feed="a").after(other, feed="b")
    flow.add(show.call(0), name="two").after(first, other, policy=Quorum(2), feed="a")
    handle = await client.start(flow)
    await own.worker(dsn=ff_dsn).run_until_idle()
    broken["it is"] = False
    await (await handle.member("first")).replay()
    await own.worker(dsn=ff_dsn).run_until_idle()

    for name in ("last", "two"):
        await (await handle.member(name)).replay()
    await own.worker(dsn=ff_dsn).run_until_idle()

    results = await handle.result(10)
    assert results["last"] == "5 2.0 b''"
    assert results["two"] in ("2 0.5 b''", "5 0.5 b''")
