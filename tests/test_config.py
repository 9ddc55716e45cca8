"""Settings: which DSNs are accepted, and that no password is ever shown."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from flowfabric import App
from flowfabric.config import (
    DATABASE_POOLER,
    DATABASE_URL,
    DatabaseConfig,
    PartitionConfig,
    behind_pooler,
    callback_url,
    check_dsn,
    database_url,
    redact,
    require_database_url,
)
from flowfabric.errors import ConfigError

SECRET = "s3cr3t-marker"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATABASE_URL, raising=False)
    monkeypatch.delenv(DATABASE_POOLER, raising=False)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://localhost/app",
        "postgres://user@host:5432/app",
        "postgresql://user:secret@host/app?sslmode=require",
        "postgresql:///app?host=/var/run/postgresql",
        "postgresql://[::1]:5432/app",
        "postgresql://one:5432,two:5433/app?target_session_attrs=read-write",
    ],
)
def test_a_postgres_url_is_accepted_as_it_is(dsn: str) -> None:
    assert check_dsn(dsn) == dsn
    assert database_url(dsn) == require_database_url(dsn) == dsn


@pytest.mark.parametrize(
    "dsn",
    [
        "mysql://host/app",
        "host=localhost dbname=app",
        "/var/lib/app.db",
        "sqlite:///app.db",
        "postgresql+asyncpg://host/app",
        "postgresql://[::1/app",
    ],
)
def test_what_is_no_postgres_url_is_refused_by_the_settings_name(dsn: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_dsn(dsn)

    assert (error.value.context, error.value.field) == ("database", DATABASE_URL)


def test_the_given_url_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert database_url() is None
    monkeypatch.setenv(DATABASE_URL, "postgresql://from-environment/app")

    assert database_url() == require_database_url() == "postgresql://from-environment/app"
    assert database_url("postgresql://given/app") == "postgresql://given/app"


def test_an_empty_environment_is_no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATABASE_URL, "")

    assert database_url() is None
    with pytest.raises(ConfigError, match=DATABASE_URL):
        require_database_url()


def test_a_bad_url_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATABASE_URL, "mysql://host/app")

    with pytest.raises(ConfigError, match="not a postgresql:// URL"):
        database_url()


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://user:secret@host/app", "postgresql://user:***@host/app"),
        ("postgresql://user:user@host/user", "postgresql://user:***@host/user"),
        ("postgresql://user:a%40b@host:5432/app", "postgresql://user:***@host:5432/app"),
        ("postgresql://user:a@b@host/app", "postgresql://user:***@host/app"),
        ("postgresql://user@host/app", "postgresql://user@host/app"),
        ("postgresql:///app?host=/run", "postgresql:///app?host=/run"),
    ],
)
def test_a_url_is_shown_without_its_password(dsn: str, shown: str) -> None:
    assert redact(dsn) == shown


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://user:{SECRET}@host/app",
        f"postgresql://user@host/app?password={SECRET}",
        f"postgresql:///app?host=/run&password={SECRET}&user=u",
        f"host=localhost password={SECRET} dbname=app",
        f"mysql://user:{SECRET}@host/app",
        f"user:{SECRET}@host/app",
    ],
)
def test_no_password_is_in_what_a_setting_shows(dsn: str) -> None:
    try:
        config = DatabaseConfig(dsn=check_dsn(dsn))
        shown = repr(config) + str(config)
    except ConfigError as error:
        shown = str(error) + repr(error)
        with pytest.raises(ConfigError) as refused:
            DatabaseConfig(dsn=dsn)
        shown += str(refused.value) + repr(refused.value)

    assert SECRET not in shown


SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"dsn": 3}, "dsn: is a int; write a text such as postgresql://"),
    ({"dsn": ""}, "dsn: the value is not a postgresql:// URL; write postgresql://user@host/name"),
    ({"direct_dsn": "mysql://x"}, "direct_dsn: mysql://… is not a postgresql:// URL"),
    ({"pool_size": 0}, "pool_size: 0 must be a whole number of at least 1"),
    ({"pool_size": "4"}, "pool_size: '4' must be a whole number"),
    ({"pooler": "no"}, "pooler: 'no' must be True or False"),
    ({"listen": None}, "listen: None must be True or False"),
    ({"statement_timeout": 0}, "statement_timeout: 0 must be from a millisecond"),
    ({"lock_timeout": -1}, "lock_timeout: -1 must be from a millisecond"),
    ({"lock_timeout": None}, "lock_timeout: None must be a number of seconds or a timedelta"),
    ({"connect_timeout": "5s"}, "connect_timeout: '5s' must be a number of seconds"),
    ({"idle_transaction_timeout": float("nan")}, "idle_transaction_timeout: nan must be"),
    ({"partitions": 256}, "partitions: must be a PartitionConfig"),
]


@pytest.mark.parametrize(("given", "why"), SETTINGS, ids=[str(given) for given, _ in SETTINGS])
def test_a_setting_of_the_database_that_cannot_be_is_refused(
    given: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        DatabaseConfig(**{"dsn": "postgresql:///app", **given})


def test_a_timeout_may_be_a_timedelta() -> None:
    assert DatabaseConfig(
        dsn="postgresql:///app",
        lock_timeout=timedelta(seconds=2),  # type: ignore[arg-type]
    ) == DatabaseConfig(dsn="postgresql:///app", lock_timeout=2.0)


def test_the_defaults_are_those_of_the_spec() -> None:
    assert PartitionConfig() == PartitionConfig(
        num_flow_partitions=256, num_budget_partitions=32, num_quota_partitions=32
    )
    assert DatabaseConfig(dsn="postgresql:///app").partitions == PartitionConfig()


@pytest.mark.parametrize(
    ("said", "behind"),
    [("1", True), ("true", True), ("ON", True), ("0", False), ("no", False), ("", False)],
)
def test_the_environment_says_whether_there_is_a_pooler(
    monkeypatch: pytest.MonkeyPatch, said: str, behind: bool
) -> None:
    monkeypatch.setenv(DATABASE_POOLER, said)

    assert DatabaseConfig(dsn="postgresql://host/app").pooler is behind
    assert behind_pooler() is behind
    assert behind_pooler(not behind) is not behind


def test_an_answer_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATABASE_POOLER, "maybe")

    with pytest.raises(ConfigError, match=r"FF_DATABASE_POOLER.*'maybe' is neither 1 nor 0"):
        behind_pooler()


def test_the_environment_says_where_outsiders_reach_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for said, address in (("", None), (" https://ff.example.org/x/ ", "https://ff.example.org/x")):
        monkeypatch.setenv("FF_CALLBACK_URL", said)
        assert callback_url() == address
    for said in ("ff.example.org", "ftp://ff", "https://", "https://ff?x=1", "https://ff#x"):
        monkeypatch.setenv("FF_CALLBACK_URL", said)
        with pytest.raises(ConfigError, match="FF_CALLBACK_URL"):
            App().worker(dsn="postgresql://localhost/ff")
