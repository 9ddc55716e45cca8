"""Registering tasks: what cannot work is refused at start, not at run time."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from flowfabric import App, ConfigError, Ctx, RetryLater, ValidationError

if TYPE_CHECKING:
    from nowhere import Missing  # pyright: ignore[reportMissingImports]  that is the point


class Cat(msgspec.Struct):
    name: str


class Dog(msgspec.Struct):
    name: str


def nothing() -> None: ...
def with_args(ctx: Ctx, *numbers: int) -> None: ...
def with_kwargs(ctx: Ctx, **options: int) -> None: ...
def with_unknown(ctx: Ctx, given: "Missing") -> None: ...
def with_unknown_result(ctx: Ctx) -> "Missing": ...
def without_context(order_id: str, total: int) -> None: ...
def with_either(ctx: Ctx, pet: Cat | Dog) -> None: ...
def with_either_result(ctx: Ctx) -> Cat | Dog: ...


IMPOSSIBLE = [
    (nothing, "first parameter"),
    (with_args, "numbers"),
    (with_kwargs, "options"),
    (with_unknown, "Missing"),
    (with_unknown_result, "Missing"),
    (without_context, "first parameter"),
    (with_either, "pet"),
    (with_either_result, "Cat"),
]


@pytest.mark.parametrize(
    ("function", "names"), IMPOSSIBLE, ids=[function.__name__ for function, _ in IMPOSSIBLE]
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
    ({"requires": "gpu"}, "not_array"),
    ({"requires": {"a b"}}, "control_or_whitespace"),
    ({"timeout": -1}, "timeout -1 must not be negative"),
    ({"deadline": timedelta(days=-1)}, "deadline .* must not be negative"),
    ({"max_reclaims": -1}, "max_reclaim_count"),
    ({"timeout": "1m"}, "timeout '1m' must be a number of seconds or a timedelta"),
    ({"deadline": True}, "deadline True must be a number of seconds or a timedelta"),
    ({"max_reclaims": 1.5}, "max_reclaim_count 1.5"),
    ({"retry": RetryLater(after=5)}, "retry RetryLater.* must be a Retry"),
    ({"retry": 5}, "retry 5 must be a Retry"),
]


@pytest.mark.parametrize(("settings", "why"), SETTINGS, ids=[str(given) for given, _ in SETTINGS])
def test_a_setting_that_cannot_be_honoured_is_refused(settings: dict[str, Any], why: str) -> None:
    app = App()

    with pytest.raises(ConfigError, match=why):
        app.task("charge", **settings)(fine)

    assert app.tasks == {}


@pytest.mark.parametrize("kind", ["", "\x00", "x" * 257], ids=["empty", "NUL", "long"])
def test_a_kind_that_cannot_be_stored_is_refused(kind: str) -> None:
    with pytest.raises(ConfigError):
        App().task(kind)(fine)


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
    ({"lanes": ["ü"]}, "lane"),
    ({"capabilities": {"a,b"}}, "comma_in_token"),
    ({"worker_id": "two words"}, "worker_id"),
    ({"worker_instance_id": "two words"}, "worker_instance_id"),
    ({"dsn": "mysql://nope"}, "postgresql://"),
]


@pytest.mark.parametrize(("settings", "why"), WORKERS, ids=[str(given) for given, _ in WORKERS])
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
