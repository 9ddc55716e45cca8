"""What type checkers see of the public names: mypy (test_types) and pyright (`make types`).

A line that must be refused has a `type: ignore`; in strict mode, mypy reports one without need.
"""

# pyright: strict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from datetime import timedelta
from typing import Any, assert_type

from flowfabric import App, Call, Client, Ctx, Depends, Handle, Member, Retry, Task, sync

app = App()


class Bank:
    async def charge(self, cents: int) -> str:
        return f"charged {cents}"


class FakeBank(Bank): ...


def plain() -> Bank:
    return Bank()


async def asynchronous() -> Bank:
    return Bank()


def generator() -> Generator[Bank, None, None]:
    yield Bank()


async def async_generator() -> AsyncGenerator[Bank, None]:
    yield Bank()


@app.task("pay")
async def pay(
    ctx: Ctx,
    cents: int,
    a: Bank = Depends(plain),
    b: Bank = Depends(asynchronous),
    c: Bank = Depends(generator, scope="process"),
    d: Bank = Depends(async_generator),
    e: Bank = Depends(Bank),
) -> str:
    return await a.charge(cents)


@app.task("add")
def add(ctx: Ctx, a: int, b: int = 0) -> int:
    return a + b


def mistaken(
    a: int = Depends(plain),  # type: ignore[assignment]
    b: int = Depends(asynchronous),  # type: ignore[assignment]
    c: int = Depends(async_generator),  # type: ignore[assignment]
) -> None: ...


@app.middleware
async def timed(ctx: Ctx, call_next: Callable[[], Awaitable[Any]]) -> Any:
    return await call_next()


async def submits(client: Client) -> None:
    tasks: list[Task[..., Any]] = [pay, add]
    assert tasks
    assert_type(add.call(1, b=2), Call[int])
    assert_type(pay.call(4200), Call[str])
    handle = await client.submit(pay.call(4200))
    assert_type(handle, Handle[str])
    assert_type(await handle.result(), str)
    many = await client.submit_many([add.call(1), add.call(2)])
    assert_type(await many[0].result(timeout=5), int)

    add.call("1")  # type: ignore[arg-type]
    add.call(1, c=2)  # type: ignore[call-arg]
    add.call()  # type: ignore[call-arg]


async def starts(client: Client) -> None:
    flow = app.flow("pay")
    paid = flow.add(pay.call(1), retry=Retry(max_retries=2), delay=timedelta(seconds=1))
    added = flow.add(add.call(1)).after(paid)
    assert_type(added, Member[int])
    handle = await client.start(flow)
    assert_type(await handle.member(paid), Handle[str])
    assert_type(await (await handle.member("add")).result(), Any)
    results = await handle.result()
    assert_type(results.of(added), int)
    assert_type(results["add"], Any)


async def reads_upstreams(ctx: Ctx) -> None:
    assert_type(await ctx.upstream(add), int)
    assert_type(await ctx.upstream(pay, "paid"), str)
    assert_type(await ctx.upstreams(add), dict[str, int])
    assert_type(await ctx.upstreams(), dict[str, Any])
    assert_type(ctx.sync.upstream(add), int)
    assert_type(ctx.sync.upstreams(add), dict[str, int])


def starts_blocking(client: sync.Client) -> None:
    flow = app.flow("pay")
    paid = flow.add(pay.call(1))
    handle = client.start(flow)
    assert_type(handle.member(paid).result(), str)
    assert_type(handle.result().of(paid), str)


def submits_blocking(client: sync.Client) -> None:
    assert_type(client.submit(add.call(1)).result(timeout=5), int)


def overrides(bank: FakeBank) -> None:
    with app.override(plain, lambda: bank), app.override(asynchronous, async_generator):
        pass
    app.override(plain, bank)  # type: ignore[arg-type]
