"""Settings: which DSNs are accepted, and that no password is ever shown."""

from __future__ import annotations

import pytest

from flowfabric.config import (
    DATABASE_POOLER,
    DATABASE_URL,
    DatabaseConfig,
    PartitionConfig,
    behind_pooler,
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
    shown = repr(DatabaseConfig(dsn=dsn)) + str(DatabaseConfig(dsn=dsn))
    try:
        check_dsn(dsn)
    except ConfigError as error:
        shown += str(error) + repr(error)

    assert SECRET not in shown


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
