"""Registering tasks: what cannot work is refused at start, not at run time."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from flowfabric import (
    App,
    ConfigError,
    Ctx,
    Depends,
    MsgpackCodec,
    RetryLater,
    ValidationError,
)
from tests.all_cases import all_cases

if TYPE_CHECKING:
    from nowhere import Missing  # pyright: ignore[reportMissingImports]  that is the point


class Cat(msgspec.Struct):
    name: str


class Dog(msgspec.Struct):
    name: str


class Plain: ...


@dataclass
class Holder:
    again: Holder | None
    plain: list[Plain]


def nothing() -> None: ...
def with_args(ctx: Ctx, *numbers: int) -> None: ...
def with_kwargs(ctx: Ctx, **options: int) -> None: ...
def with_unknown(ctx: Ctx, given: Missing) -> None: ...
def with_unknown_result(ctx: Ctx) -> Missing: ...
def without_context(order_id: str, total: int) -> None: ...
def with_either(ctx: Ctx, pet: Cat | Dog) -> None: ...
def with_either_result(ctx: Ctx) -> Cat | Dog: ...


async def a_stream(ctx: Ctx) -> AsyncGenerator[int]:
    yield 1


def a_generator(ctx: Ctx) -> Generator[int]:
    yield 1


class Callable_:  # noqa: N801  beside typing's own
    def __call__(self, ctx: Ctx) -> None: ...


def with_keyword_context(*, ctx: Ctx) -> None: ...
def with_many_contexts(*ctx: Ctx) -> None: ...
def with_two_contexts(ctx: Ctx, other: Ctx) -> None: ...
def fine_with_number(ctx: Ctx, number: int) -> None: ...
def with_positional(ctx: Ctx, number: int, /) -> None: ...
def with_a_plain_class(ctx: Ctx, given: Plain) -> None: ...
def with_plain_classes(ctx: Ctx, given: dict[str, list[Plain]]) -> None: ...
def with_a_nested_plain_class(ctx: Ctx, given: Holder) -> None: ...
def with_a_plain_result(ctx: Ctx) -> Plain: ...
def with_a_path(ctx: Ctx, path: Path) -> None: ...


IMPOSSIBLE: list[tuple[Any, str]] = [
    (nothing, "first parameter"),
    (with_args, r"parameter \*numbers cannot come from a payload: write numbers: list"),
    (with_kwargs, r"parameter \*\*options cannot come from a payload: write options: dict"),
    (a_stream, "a_stream is a generator, and a task has one result: write return"),
    (a_generator, "a_generator is a generator, and a task has one result: write return"),
    (Callable_(), "is not a function; write a def"),
    (Callable_, "is not a function; write a def"),
    (functools.partial(fine_with_number, number=1), "is not a function; write a def"),
    (print, "is not a function; write a def"),
    (None, "is not a function; write a def"),
    (with_keyword_context, "first parameter must be the context"),
    (with_many_contexts, "first parameter must be the context"),
    (with_two_contexts, "parameter 'other' is of type Ctx: only the first one may be"),
    (with_positional, "parameter 'number' is positional-only: remove the /"),
    (with_a_plain_class, "parameter 'given' has the type Plain.* write a builtin type"),
    (with_plain_classes, "parameter 'given' has the type Plain"),
    (with_a_nested_plain_class, "parameter 'given' has the type Plain"),
    (with_a_plain_result, "its result has the type Plain"),
    (with_a_path, "parameter 'path' has the type Path"),
    (with_unknown, "Missing"),
    (with_unknown_result, "Missing"),
    (without_context, "first parameter"),
    (with_either, "pet"),
    (with_either_result, "Cat"),
]


@all_cases(
    ("function", "names"), IMPOSSIBLE, ids=[f"{why}-{n}" for n, (_, why) in enumerate(IMPOSSIBLE)]
)
def test_a_function_that_cannot_be_a_task_is_refused_by_name(
    function: Callable[..., Any], names: str
) -> None:
    app = App()

    with pytest.raises(ConfigError, match=names) as refused:
        app.task("impossible")(function)

    assert refused.value.field == "impossible"
    assert app.tasks == {}


def fine(ctx: Ctx) -> None: ...


SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"lane": ""}, "lane"),
    ({"lane": "Zürich"}, "lane"),
    ({"lane": "x" * 65}, "lane"),
    ({"requires": {"gpu,tpu"}}, "comma_in_token"),
    ({"requires": {""}}, "empty_token"),
    ({"requires": "gpu"}, r"requires 'gpu' must be a list: write requires=\['gpu'\]"),
    ({"requires": None}, "requires must be a list of texts"),
    ({"requires": {"gpu": 1}}, "requires {'gpu': 1} must be a list of texts"),
    ({"requires": [1]}, r"requires \[1\] required:non_string_token"),
    ({"timeout": 0}, "timeout 0 must be at least a millisecond; None means no limit"),
    ({"deadline": timedelta(0)}, "deadline .* must be at least a millisecond"),
    ({"priority": "high"}, "priority 'high' must be a whole number"),
    ({"retry": {"max_retries": 3}}, "must be a Retry"),
    (
        {"retry_on": ValueError},
        r"retry_on 'ValueError' must be a list: write retry_on=\(ValueError",
    ),
    ({"no_retry_on": ["ValueError"]}, "no_retry_on 'ValueError' must be an exception class"),
    ({"no_retry_on": 3}, "no_retry_on 3 must be a list"),
    ({"codec": "json"}, r"codec 'json' must be a codec: write codec=MsgpackCodec\(\)"),
    ({"codec": MsgpackCodec}, "must be a codec: write codec=MsgpackCodec"),
    ({"executor": "fork"}, "executor 'fork' must be 'thread' or 'process'"),
    ({"executor": None}, "executor must be 'thread' or 'process'"),
    ({"requires": {"a b"}}, "control_or_whitespace"),
    ({"timeout": -1}, "timeout -1 must not be negative"),
    ({"deadline": timedelta(days=-1)}, "deadline .* must not be negative"),
    ({"max_reclaims": -1}, "max_reclaim_count"),
    ({"timeout": "1m"}, "timeout '1m' must be a number of seconds or a timedelta"),
    ({"deadline": True}, "deadline True must be a number of seconds or a timedelta"),
    ({"max_reclaims": 1.5}, "max_reclaim_count 1.5"),
    ({"retry": RetryLater(after=5)}, "retry RetryLater.* must be a Retry"),
    ({"retry": 5}, r"retry 5 must be a Retry: write retry=Retry\(max_retries=5\)"),
    ({"replay": "loose"}, "replay 'loose' must be 'strict' or 'by_name'"),
    ({"on_divergence": "ignore"}, "on_divergence 'ignore' must be 'suspend' or 'fail'"),
    ({"version": -1}, "version -1 must be a whole number"),
    ({"version": "2"}, "version '2' must be a whole number"),
    ({"max_step_bytes": 0}, "max_step_bytes 0 must be a whole number from 1"),
    ({"max_step_bytes": 2**20 + 1}, "max_step_bytes 1048577 must be a whole number from 1"),
    ({"raises": OSError}, r"raises 'OSError' must be a list: write raises=\(OSError,\)"),
]


@all_cases(("settings", "why"), SETTINGS, ids=[str(given) for given, _ in SETTINGS])
def test_a_setting_that_cannot_be_honoured_is_refused(settings: dict[str, Any], why: str) -> None:
    app = App()

    with pytest.raises(ConfigError, match=why):
        app.task("charge", **settings)(fine)

    assert app.tasks == {}


@pytest.mark.parametrize("kind", ["", "\x00", "x" * 257], ids=["empty", "NUL", "long"])
def test_a_kind_that_cannot_be_stored_is_refused(kind: str) -> None:
    with pytest.raises(ConfigError):
        App().task(kind)(fine)


def test_a_decorator_without_its_kind_says_what_to_write() -> None:
    with pytest.raises(
        ConfigError, match=r"kind 'fine' is a function: write @app.task\(\"fine\"\)"
    ):
        App().task(fine)  # type: ignore[arg-type]


def test_a_list_of_capabilities_is_as_good_as_a_set() -> None:
    assert App().task("a", requires=["gpu", "eu"])(fine).requires == ("eu", "gpu")


def loose(function: Any) -> Any:
    """The function as a program without a type checker sees it."""
    return function


@all_cases(
    ("write", "why"),
    [
        (lambda: loose(App)(codec="json"), "codec 'json' must be a codec"),
        (lambda: loose(App().middleware)(3), "is not a function; write async def m"),
        (
            lambda: loose(App().middleware)(nothing),
            "too many positional arguments; write async def m",
        ),
        (lambda: loose(App().middleware)(a_stream), "is a generator; write async def m"),
        (lambda: loose(Depends)(3), r"3 is not a function; write Depends\(get_it\)"),
        (lambda: loose(Depends)(nothing, scope="app"), "scope: 'app' must be 'task' or 'process'"),
        (lambda: loose(RetryLater)(30), "reason 30 must be a text: write after=30"),
    ],
)
def test_what_is_written_beside_tasks_is_checked_too(write: Callable[[], Any], why: str) -> None:
    with pytest.raises((ConfigError, ValidationError), match=why):
        write()


def test_a_kind_belongs_to_one_function() -> None:
    app = App()
    app.task("charge")(fine)

    with pytest.raises(ConfigError, match="charge: is registered already"):
        app.task("charge")(fine)

    assert app.tasks["charge"].function is fine


def test_a_namespace_that_cannot_be_stored_is_refused() -> None:
    with pytest.raises((ConfigError, ValidationError), match="namespace"):
        App(namespace="")


def test_an_app_serves_the_lanes_of_its_tasks() -> None:
    app = App()
    assert app.lanes == ("default",)

    app.task("a", lane="mail")(fine)
    app.task("b", lane="billing")(fine)
    app.task("c", lane="mail")(fine)

    assert app.lanes == ("billing", "mail")


WORKERS: list[tuple[dict[str, Any], str]] = [
    ({"concurrency": 0}, "concurrency"),
    ({"sync_workers": 0}, "sync_workers"),
    ({"lease_ttl": 0.999}, "lease_ttl"),
    ({"lease_ttl": timedelta(milliseconds=999)}, "lease_ttl"),
    ({"lease_ttl": "30"}, "lease_ttl '30' must be a number of seconds or a timedelta"),
    ({"lease_ttl": True}, "lease_ttl True must be a number of seconds or a timedelta"),
    ({"lease_ttl": float("nan")}, "lease_ttl nan"),
    ({"concurrency": 2.5}, "concurrency: 2.5 is not a whole number"),
    ({"transactions": "4"}, "transactions: '4' is not a whole number"),
    ({"sync_workers": True}, "sync_workers: True is not a whole number"),
    ({"drain": -1}, "drain"),
    ({"lanes": []}, "lane"),
    ({"lanes": "default"}, r"lanes 'default' must be a list: write lanes=\['default'\]"),
    ({"lanes": 3}, "lanes 3 must be a list of texts"),
    ({"lanes": {"a": 1}}, "lanes {'a': 1} must be a list of texts"),
    ({"lanes": [["a"]]}, "must be a list of texts"),
    ({"lanes": [3]}, "3 must be a text"),
    ({"capabilities": "gpu"}, r"capabilities 'gpu' must be a list: write capabilities=\['gpu'\]"),
    ({"capabilities": None}, "capabilities must be a list of texts"),
    ({"on_lease_lost": "kill"}, "on_lease_lost: 'kill' must be 'cancel' or 'ignore'"),
    ({"lease_history": 1}, "lease_history: 1 must be 'brief' or 'full'"),
    ({"reconcile": "no"}, "reconcile: 'no' must be True or False"),
    ({"pooler": "yes"}, "pooler: 'yes' must be True or False"),
    ({"listen": None}, "listen: None must be True or False"),
    ({"dsn": 3}, "is a int; write a text such as postgresql://"),
    ({"direct_dsn": 3}, "is a int; write a text such as postgresql://"),
    ({"lease_ttl": None}, "lease_ttl must be a number of seconds or a timedelta"),
    ({"lanes": ["ü"]}, "lane"),
    ({"capabilities": {"a,b"}}, "comma_in_token"),
    ({"worker_id": "two words"}, "worker_id"),
    ({"worker_instance_id": "two words"}, "worker_instance_id"),
    ({"dsn": "mysql://nope"}, "postgresql://"),
]


@all_cases(("settings", "why"), WORKERS, ids=[str(given) for given, _ in WORKERS])
def test_a_worker_with_impossible_settings_is_not_made(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        App().worker(**{"dsn": "postgresql://localhost/nowhere", **settings})


def test_a_worker_needs_to_be_told_where_the_database_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FF_DATABASE_URL", raising=False)

    with pytest.raises(ConfigError, match="FF_DATABASE_URL"):
        App().worker()


def test_a_worker_has_the_promised_defaults() -> None:
    settings = App("shop").worker(dsn="postgresql://localhost/nowhere").settings

    assert (settings.lease_ttl, settings.drain) == (30.0, 30.0)
    assert (settings.concurrency, settings.sync_workers) == (64, 32)
    assert (settings.on_lease_lost, settings.reconcile) == ("cancel", True)
    assert (settings.namespace, settings.lanes) == ("shop", ("default",))


def test_each_worker_process_has_a_name_of_its_own() -> None:
    app = App()

    names = {app.worker(dsn="postgresql://localhost/nowhere").instance for _ in range(3)}

    assert len(names) == 3
