"""Dependencies: made for a handler, put away after it."""

from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest

from flowfabric import App, Client, ConfigError, Ctx, Depends, ExecutionFailed
from tests.worker.facts import eventually


async def result_of(client: Client, ff_dsn: str, app: App, call: Any) -> Any:
    handle = await client.submit(call)
    await app.worker(dsn=ff_dsn).run_until_idle()
    return await handle.result(timeout=10)


def plain() -> str:
    return "plain"


async def asynchronous() -> str:
    return "async"


def generator() -> Generator[str]:
    yield "generator"


async def async_generator() -> AsyncGenerator[str]:
    yield "async generator"


def of_the_context(ctx: Ctx) -> str:
    return f"kind {ctx.kind}"


def nested(inner: str = Depends(asynchronous), other: str = Depends(generator)) -> str:
    return f"{inner} in {other}"


def with_default(limit: int = 3) -> str:
    return f"limit {limit}"


FACTORIES = [
    (plain, "plain"),
    (asynchronous, "async"),
    (generator, "generator"),
    (async_generator, "async generator"),
    (of_the_context, "kind uses"),
    (nested, "async in generator"),
    (with_default, "limit 3"),
    (lambda: "lambda", "lambda"),
]


@pytest.mark.parametrize(
    ("factory", "made"), FACTORIES, ids=[factory.__name__ for factory, _ in FACTORIES]
)
@pytest.mark.parametrize("threaded", [False, True], ids=["async handler", "sync handler"])
async def test_a_handler_gets_what_its_factory_makes(
    client: Client, ff_dsn: str, factory: Callable[..., Any], made: str, threaded: bool
) -> None:
    app = App()

    if threaded:

        @app.task("uses")
        def uses(ctx: Ctx, prefix: str, thing: str = Depends(factory)) -> str:
            return prefix + thing
    else:

        @app.task("uses")
        async def uses(ctx: Ctx, prefix: str, thing: str = Depends(factory)) -> str:
            return prefix + thing

    assert await result_of(client, ff_dsn, app, uses.call("a ")) == f"a {made}"


class Diary:
    """What was made and put away, in order; factories that write into it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def outer(self) -> Generator[str]:
        self.lines.append("open outer")
        try:
            yield "outer"
        finally:
            self.lines.append("close outer")

    async def last(self) -> AsyncGenerator[str]:
        self.lines.append("open last")
        try:
            yield "last"
        finally:
            self.lines.append("close last")


async def test_what_was_made_last_is_put_away_first_and_after_the_handler(
    client: Client, ff_dsn: str
) -> None:
    app, diary = App(), Diary()

    def inner(outer: str = Depends(diary.outer)) -> Generator[str]:
        diary.lines.append(f"open inner of {outer}")
        yield "inner"
        diary.lines.append("close inner")

    @app.task("uses")
    async def uses(ctx: Ctx, a: str = Depends(inner), b: str = Depends(diary.last)) -> None:
        diary.lines.append(f"run with {a} and {b}")

    await result_of(client, ff_dsn, app, uses.call())

    assert diary.lines == [
        "open outer",
        "open inner of outer",
        "open last",
        "run with inner and last",
        "close last",
        "close inner",
        "close outer",
    ]


async def test_dependencies_are_put_away_when_the_handler_fails(
    client: Client, ff_dsn: str
) -> None:
    app, diary = App(), Diary()

    @app.task("fails")
    async def fails(ctx: Ctx, a: str = Depends(diary.outer), b: str = Depends(diary.last)) -> None:
        raise RuntimeError("broken")

    with pytest.raises(ExecutionFailed, match="broken"):
        await result_of(client, ff_dsn, app, fails.call())

    assert diary.lines == ["open outer", "open last", "close last", "close outer"]


async def test_a_dependency_that_swallows_the_error_does_not_make_a_success_of_it(
    client: Client, ff_dsn: str
) -> None:
    app, rolled_back = App(), []

    def session() -> Generator[str]:
        try:
            yield "session"
        except RuntimeError as error:
            rolled_back.append(str(error))

    @app.task("fails")
    async def fails(ctx: Ctx, session: str = Depends(session)) -> str:
        raise RuntimeError("broken")

    with pytest.raises(ExecutionFailed, match="broken"):
        await result_of(client, ff_dsn, app, fails.call())
    assert rolled_back == ["broken"]


@pytest.mark.parametrize("when", ["making", "putting away"])
async def test_a_factory_that_fails_fails_the_attempt(
    client: Client, ff_dsn: str, when: str
) -> None:
    app, ran = App(), []

    def faulty() -> Generator[str]:
        if when == "making":
            raise RuntimeError("cannot make")
        yield "thing"
        raise RuntimeError("cannot put away")

    @app.task("uses")
    async def uses(ctx: Ctx, thing: str = Depends(faulty)) -> None:
        ran.append(thing)

    with pytest.raises(ExecutionFailed, match="cannot") as failed:
        await result_of(client, ff_dsn, app, uses.call())

    assert failed.value.category == "handler_error"
    assert ran == ([] if when == "making" else ["thing"])


async def test_each_execution_gets_its_own_unless_the_scope_is_the_process(
    client: Client, ff_dsn: str
) -> None:
    app = App()
    made = {"task": 0, "process": 0}

    def of_task() -> object:
        made["task"] += 1
        return object()

    async def of_process() -> object:
        made["process"] += 1
        await eventually(lambda: made["task"] == 5)  # the others come, and wait for the same one
        return object()

    shared: set[int] = set()

    @app.task("uses")
    async def uses(
        ctx: Ctx, a: object = Depends(of_task), b: object = Depends(of_process, scope="process")
    ) -> None:
        shared.add(id(b))

    await client.submit_many([uses.call() for _ in range(5)])
    await app.worker(dsn=ff_dsn, concurrency=5).run_until_idle()

    assert made == {"task": 5, "process": 1}
    assert len(shared) == 1


async def test_what_lives_as_long_as_the_process_is_put_away_when_the_worker_has_stopped(
    client: Client, ff_dsn: str
) -> None:
    app, diary = App(), Diary()

    @app.task("uses")
    async def uses(ctx: Ctx, a: str = Depends(diary.outer, scope="process")) -> None:
        diary.lines.append("run")

    await client.submit_many([uses.call(), uses.call()])
    await app.worker(dsn=ff_dsn, concurrency=1).run_until_idle()

    assert diary.lines == ["open outer", "run", "run", "close outer"]


def needs(other: str) -> str:
    return other


def needs_through(inner: str = Depends(needs)) -> str:
    return inner


@pytest.mark.parametrize("factory", [needs, needs_through], ids=["itself", "nested"])
def test_a_parameter_that_nothing_provides_is_refused_at_registration(
    factory: Callable[..., Any],
) -> None:
    app = App()

    with pytest.raises(ConfigError, match="nothing provides parameter 'other'"):

        @app.task("uses")
        async def uses(ctx: Ctx, thing: str = Depends(factory)) -> None: ...

    assert app.tasks == {}


async def test_a_caller_cannot_give_what_is_provided(client: Client, ff_dsn: str) -> None:
    app = App()

    @app.task("uses")
    async def uses(ctx: Ctx, name: str, thing: str = Depends(plain)) -> str:
        return name + thing

    assert uses.call("a").payload == b'{"name":"a"}'
    assert await result_of(client, ff_dsn, app, uses.call("a ")) == "a plain"
