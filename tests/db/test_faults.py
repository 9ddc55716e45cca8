"""What goes wrong in a real Postgres, as one of our errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit, urlunsplit

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.faults import SerializationConflict, statement_name, translated
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection, execute
from flowfabric.errors import (
    FlowFabricError,
    InternalError,
    OperationTimeout,
    ResourceExhausted,
    TransportError,
    Unavailable,
    ValidationError,
)
from tests.db.facts import blocked, disconnected

pytestmark = pytest.mark.session("provokes errors by settings and process ids of its sessions")

Another = Callable[[], Awaitable[Connection]]
INSERT_LANE = "\n-- lanes.seed: one\nINSERT INTO ff.lane_registry VALUES (%(lane)s, 0, 'test')"
RAISE = "DO $$ BEGIN RAISE SQLSTATE '{}' USING MESSAGE = 'provoked'; END $$"


async def fault(conn: Connection, sql: str, **params: object) -> FlowFabricError:
    with pytest.raises(FlowFabricError) as error:
        await execute(conn, sql, **params)  # pyright: ignore[reportArgumentType]
    assert error.value.__cause__ is not None
    return error.value


# Conflicts with other transactions.


async def test_a_deadlock_is_a_conflict_to_run_again(db: Connection, another: Another) -> None:
    first, second = await another(), await another()
    for lane in ("a", "b"):
        await execute(db, INSERT_LANE, lane=lane)
    touch = "UPDATE ff.lane_registry SET registered_by = 'x' WHERE lane_id = %(lane)s"
    for conn, lane in ((first, "a"), (second, "b")):
        await conn.execute("SET deadlock_timeout = '5ms'")
        await conn.execute("BEGIN")
        await execute(conn, touch, lane=lane)

    answers = await asyncio.gather(
        execute(first, touch, lane="b"), execute(second, touch, lane="a"), return_exceptions=True
    )

    [victim] = [answer for answer in answers if answer is not None]
    assert isinstance(victim, SerializationConflict)
    assert "deadlock detected" in str(victim)


async def test_a_serialization_failure_is_a_conflict(db: Connection, another: Another) -> None:
    await execute(db, INSERT_LANE, lane="a")
    first = await another()
    await first.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
    await first.fetch("SELECT * FROM ff.lane_registry")
    await db.execute("UPDATE ff.lane_registry SET registered_by = 'other'")

    error = await fault(first, "UPDATE ff.lane_registry SET registered_by = 'mine'")

    assert isinstance(error, SerializationConflict)
    await first.execute("ROLLBACK")


async def test_a_lock_that_is_not_given_in_time_is_a_conflict(
    db: Connection, another: Another
) -> None:
    holder = await another()
    await holder.execute("BEGIN; LOCK TABLE ff.lane_registry")
    await db.execute("SET lock_timeout = '20ms'")

    assert isinstance(await fault(db, INSERT_LANE, lane="a"), SerializationConflict)
    await holder.execute("ROLLBACK")


async def test_a_row_locked_with_nowait_is_a_conflict(db: Connection, another: Another) -> None:
    await execute(db, INSERT_LANE, lane="a")
    holder = await another()
    await holder.execute("BEGIN; SELECT * FROM ff.lane_registry FOR UPDATE")

    error = await fault(db, "SELECT * FROM ff.lane_registry FOR UPDATE NOWAIT")

    assert isinstance(error, SerializationConflict)
    await holder.execute("ROLLBACK")


# What the caller gave.


async def test_a_nul_in_a_text_is_invalid_input(db: Connection) -> None:
    error = await fault(db, INSERT_LANE, lane="a\x00b")

    assert isinstance(error, ValidationError)
    assert error.code == "invalid_input"


async def test_a_nul_in_json_is_invalid_input(db: Connection) -> None:
    error = await fault(db, "SELECT %(given)s::jsonb ->> 0", given='["\\u0000"]')

    assert isinstance(error, ValidationError)


async def test_a_lone_surrogate_is_invalid_input(db: Connection) -> None:
    error = await fault(db, INSERT_LANE, lane="a\ud800b")

    assert isinstance(error, ValidationError)
    assert "lanes.seed" in str(error)


async def test_a_number_too_large_for_its_column_is_invalid_input(db: Connection) -> None:
    for number in (2**31, -(2**31) - 1, 2**80):
        assert isinstance(await fault(db, "SELECT %(n)s::integer", n=number), ValidationError)


async def test_a_check_that_fails_is_invalid_input(db: Connection) -> None:
    error = await fault(db, "INSERT INTO ff.route VALUES (1, 'ns', '', 'kind', '{}')")

    assert isinstance(error, ValidationError)
    assert "route_lane_id" in error.detail


async def test_what_ff_submit_refuses_is_invalid_input_once(db: Connection) -> None:
    error = await fault(db, "SELECT ff.submit('')")

    assert isinstance(error, ValidationError)
    assert str(error) == "invalid_input: kind must not be empty"


# Bugs of ours, and databases that are not ready.


async def test_a_unique_violation_that_nobody_expected_is_a_bug(db: Connection) -> None:
    await execute(db, INSERT_LANE, lane="a")

    error = await fault(db, INSERT_LANE, lane="a")

    assert isinstance(error, InternalError)
    assert str(error).startswith("lanes.seed: one: ")
    assert "23505" in str(error)


async def test_an_object_that_is_missing_asks_for_a_migration(db: Connection) -> None:
    for sql in (
        "SELECT * FROM ff.not_there",
        "INSERT INTO no_schema.route VALUES (1)",
        "CREATE TABLE no_schema.route ()",
        "SELECT ff.not_there()",
        "SELECT not_there FROM ff.route",
    ):
        error = await fault(db, f"-- lanes.seed\n{sql}")

        assert isinstance(error, Unavailable), sql
        assert error.operation == "lanes.seed"
        assert "ff migrate" in str(error)


async def test_a_syntax_error_is_a_bug(db: Connection) -> None:
    error = await fault(db, "SELEC 1")

    assert isinstance(error, InternalError)
    assert "42601" in str(error)


async def test_a_used_up_resource_is_named(db: Connection) -> None:
    for state, resource in (("53100", "disk"), ("53200", "memory"), ("53300", "connections")):
        error = await fault(db, RAISE.format(state))

        assert isinstance(error, ResourceExhausted)
        assert error.resource == resource
        assert error.retryable


# Time and connections.


async def test_a_statement_that_takes_too_long_times_out(db: Connection) -> None:
    await db.execute("SET statement_timeout = '20ms'")

    error = await fault(db, "-- lanes.seed\nSELECT pg_sleep(60)")

    assert isinstance(error, OperationTimeout)
    assert error.operation == "lanes.seed"


async def test_a_server_that_goes_away_is_transport(db: Connection) -> None:
    for state in ("57P01", "57P02", "57P03", "57P05", "25P03", "08006", "08P01"):
        error = await fault(db, RAISE.format(state))

        assert isinstance(error, TransportError), state
        assert error.retryable


async def test_a_connection_cut_while_idle_is_transport(db: Connection, another: Another) -> None:
    cut = await another()
    await disconnected(db, cut.get_server_pid())

    assert isinstance(await fault(cut, INSERT_LANE, lane="a"), TransportError)
    assert isinstance(await fault(cut, INSERT_LANE, lane="a"), TransportError)


async def test_a_connection_cut_in_the_middle_of_a_statement_is_transport(
    db: Connection, another: Another
) -> None:
    holder, cut = await another(), await another()
    await holder.execute("BEGIN; LOCK TABLE ff.lane_registry")
    call = await blocked(db, cut, fault(cut, INSERT_LANE, lane="a"))

    await disconnected(db, cut.get_server_pid())

    assert isinstance(await call, TransportError)
    await holder.execute("ROLLBACK")


def elsewhere(dsn: str, *, user: str | None = None, database: str | None = None) -> str:
    """The DSN with another user or database."""
    parts = urlsplit(dsn)
    host = parts.netloc.rpartition("@")[2]
    netloc = parts.netloc if user is None else f"{user}:s3cr3t-marker@{host}"
    return urlunsplit(
        parts._replace(netloc=netloc, path=parts.path if database is None else f"/{database}")
    )


async def test_a_database_or_user_that_is_not_there_is_unavailable(ff_dsn: str) -> None:
    for dsn in (
        elsewhere(ff_dsn, database="not_there"),
        elsewhere(ff_dsn, user="nobody_of_that_name"),
    ):
        with pytest.raises(Unavailable, match="does not exist") as error:
            await connect(DatabaseConfig(dsn=dsn), role="tests")

        assert not error.value.retryable
        assert "s3cr3t-marker" not in str(error.value)


# Names.


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("\n-- lifecycle.claim\nWITH", "lifecycle.claim"),
        ("-- db.boot: the counts\nSELECT", "db.boot: the counts"),
        ("SELECT 1", "statement"),
        ("", "statement"),
    ],
)
def test_a_statement_is_called_by_its_first_line(sql: str, name: str) -> None:
    assert statement_name(sql) == name


@pytest.mark.parametrize("ours", [ValueError("x"), ValidationError("invalid_input", "x")])
def test_what_is_not_the_drivers_passes_unchanged(ours: Exception) -> None:
    with pytest.raises(type(ours)) as error, translated("-- lanes.seed\n"):
        raise ours

    assert error.value is ours


def test_a_refused_connection_is_transport() -> None:
    with pytest.raises(TransportError, match=r"lanes\.seed"), translated("-- lanes.seed\n"):
        raise ConnectionRefusedError("refused")


def test_a_connection_that_the_network_gave_up_on_is_transport() -> None:
    with pytest.raises(TransportError), translated("-- lanes.seed\n"):
        raise TimeoutError(110, "Connection timed out")
